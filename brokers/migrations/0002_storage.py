"""What Django's schema editor cannot say: the slotted transaction index and storage parameters.

The hot tables are tuned for their one pattern: cursors and partitions are updated in
place (room on the page, no index on what moves), segments are appended and read back
in slices (out of line, uncompressed), transaction slots are filled and truncated whole.
"""

from django.db import migrations

# class 4: windows up to five minutes, 0: up to an hour, 1: up to a day, 2: up to thirty days,
# 3: longer, whose one slot is never truncated but purged row by row.
SLOTS = [
    (0, 0, 3600),
    (1, 0, 3600),
    (2, 0, 3600),
    (3, 1, 86400),
    (4, 1, 86400),
    (5, 1, 86400),
    (6, 2, 2592000),
    (7, 2, 2592000),
    (8, 2, 2592000),
    (9, 3, 0),
    (10, 4, 300),
    (11, 4, 300),
    (12, 4, 300),
]

CREATE_TXN = (
    """
CREATE TABLE queen_txn (
    partition_id   bigint NOT NULL,
    hash           bigint NOT NULL,
    message_offset bigint NOT NULL,
    created_at     timestamptz NOT NULL,
    slot           smallint NOT NULL
) PARTITION BY LIST (slot);
CREATE INDEX queen_txn_address ON queen_txn (partition_id, hash);
"""
    + "\n".join(
        f"CREATE TABLE queen_txn_{slot} PARTITION OF queen_txn FOR VALUES IN ({slot})"
        f" WITH (autovacuum_enabled = {'false' if txn_class in (0, 4) else 'true'});\n"
        f"INSERT INTO queen_txn_slot (slot, txn_class, span_s) VALUES ({slot}, {txn_class}, {span_s});"
        for slot, txn_class, span_s in SLOTS
    )
    + "\nCREATE INDEX queen_txn_9_created ON queen_txn_9 (created_at);\n"
)

STORAGE = """
ALTER TABLE queen_partition SET (
    fillfactor = 70, vacuum_truncate = off,
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.2);
ALTER TABLE queen_cursor SET (
    fillfactor = 50, vacuum_truncate = off,
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.2);
ALTER TABLE queen_queue SET (fillfactor = 70, vacuum_truncate = off);
ALTER TABLE queen_wake SET (fillfactor = 50, vacuum_truncate = off);
ALTER TABLE queen_segment ALTER COLUMN frames SET STORAGE EXTERNAL;
ALTER TABLE queen_segment ALTER COLUMN ends SET STORAGE EXTERNAL;
ALTER TABLE queen_segment SET (vacuum_truncate = off, toast.vacuum_truncate = off);
"""


class Migration(migrations.Migration):
    dependencies = [("brokers", "0001_initial")]

    operations = [
        migrations.RunSQL(CREATE_TXN, "DROP TABLE queen_txn; DELETE FROM queen_txn_slot"),
        migrations.RunSQL(STORAGE, migrations.RunSQL.noop),
    ]
