"""Procedures are brought to their present text, whatever an earlier one of the name was like.

Method: a database of the test's own, in which one is made an older one by hand.
"""

from brokers.store.install import install_procedures

NAME = "queen_broker_series_v1"
SHAPE = "SELECT pg_get_function_result(oid) FROM pg_proc WHERE proname = %s"
OLDER = """
DROP FUNCTION queen_broker_series_v1;
CREATE FUNCTION queen_broker_series_v1(
    p_from timestamptz, p_to timestamptz, p_minutes integer, p_server_id text
) RETURNS TABLE (bucket timestamptz) LANGUAGE sql AS 'SELECT now()';
UPDATE queen_system SET value = value || '{"queen_broker_series_v1": "older"}'
 WHERE key = 'procedures';
"""


def test_a_procedure_that_answers_in_another_shape_than_its_older_one_takes_its_place(
    fresh_database,
):
    with fresh_database().connect(autocommit=False) as db:
        [now] = db.execute(SHAPE, [NAME]).fetchall()
        db.execute(OLDER)
        db.commit()
        assert db.execute(SHAPE, [NAME]).fetchall() != [now]

        assert install_procedures(db) == [NAME]
        db.commit()
        assert db.execute(SHAPE, [NAME]).fetchall() == [now]
        assert install_procedures(db) == []
