"""A broker has told the database its floor of transaction ids before it serves anybody."""


def test_a_broker_that_is_ready_has_told_how_long_ids_are_to_be_remembered(broker, db):
    [[floors]] = db.execute("SELECT value FROM queen_system WHERE key = 'txn_floors'").fetchall()
    assert "900" in floors
