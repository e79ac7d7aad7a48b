"""Tables as full as the management API must bear: written by SQL, not through a broker.

`fill` writes queues of a hundred partitions, a segment of a hundred messages in each, cursors,
dead letters of which nine in ten lie in one queue, the history of a broker that is busy in all
queues, and beside them traces, entries, timers, stream state and redrives. Whole segments are
copies of a few, so that a fill takes minutes. `Known` names what there is to ask for.

Used by management_scale.py, console_scale.py and test_plans.py.
"""

import uuid
from dataclasses import dataclass
from typing import Any

import psycopg

from brokers import frames
from brokers.domain import DEFAULT_TENANT

LANES = 100
IN_SEGMENT = 100
VARIANTS = 16
GROUP = "readers"
QUEUE = "area-0.task-0.q0"
TRACE_NAME = "all"


@dataclass(frozen=True)
class Volume:
    queues: int
    letters: int
    others: int  # traces, entries and timers, of each

    @classmethod
    def scaled(cls, scale: float) -> "Volume":
        return cls(
            queues=max(int(1000 * scale), 10),
            letters=max(int(1_000_000 * scale), 1000),
            others=max(int(100_000 * scale), 1000),
        )

    @property
    def lanes(self) -> int:
        return self.queues * LANES

    @property
    def messages(self) -> int:
        return self.lanes * IN_SEGMENT


@dataclass(frozen=True)
class Known:
    """What a request can name; the queue is the one with most dead letters."""

    partition_id: str
    transaction_id: str
    dead_transaction_id: str
    query_id: str
    redrive_id: str
    queue: str = QUEUE
    group: str = GROUP


# Each takes (tenant, queues, letters, others) by name; in this order.
TABLES = {
    "queues": """
INSERT INTO queen_queue (tenant_id, name, namespace, task, created_at)
SELECT %(tenant)s, format('area-%%s.task-%%s.q%%s', no %% 20, no %% 7, no), 'area-' || no %% 20,
       'task-' || no %% 7, now() - interval '90 days'
  FROM generate_series(0, %(queues)s - 1) AS no""",
    # One in fifty was written within the last hour, the others within two days.
    "partitions": """
INSERT INTO queen_partition (queue_id, name, created_at, last_offset, last_created_at,
                             last_write_at, oldest_live_at)
SELECT queue.id, 'p' || lane, queue.created_at, 99, wrote.at, wrote.at, wrote.at
  FROM queen_queue queue
 CROSS JOIN generate_series(0, 99) AS lane
 CROSS JOIN LATERAL (
    SELECT now() - make_interval(secs => ((queue.id * 100 + lane) * 7919 %% 172800)) AS at
 ) AS wrote""",
    "segments": """
INSERT INTO queen_segment (partition_id, base_offset, end_offset, created_at, format, frames,
                           ends)
SELECT lane.id, 0, 99, lane.last_created_at, 1, variant.frames, variant.ends
  FROM queen_partition lane
  JOIN variant ON variant.no = lane.id %% %(variants)s""",
    "transactions": """
INSERT INTO queen_txn (partition_id, hash, message_offset, created_at, slot)
SELECT lane.id, variant.hash, variant.place, lane.last_created_at,
       (queen_txn_slots_v1(lane.last_created_at))[1]
  FROM queen_partition lane
  JOIN variant_message variant ON variant.no = lane.id %% %(variants)s
 WHERE lane.last_created_at > now() - interval '2 hours'""",
    "groups": """
INSERT INTO queen_group (queue_id, consumer_group, subscription_mode, created_at)
SELECT queue.id, asked.consumer_group, 'all', queue.created_at
  FROM queen_queue queue
 CROSS JOIN unnest(ARRAY['readers', 'auditors', '__QUEUE_MODE__']) AS asked(consumer_group)
 WHERE asked.consumer_group <> '__QUEUE_MODE__' OR queue.id %% 10 = 0""",
    "cursors": """
INSERT INTO queen_cursor (partition_id, consumer_group, committed, total_consumed, leased_at,
                          batch_start, batch_end, lease_id, lease_expires_at)
SELECT lane.id, held.consumer_group,
       CASE WHEN held.consumer_group = 'auditors' THEN 99 ELSE 49 END, 50, now(),
       CASE WHEN lane.id %% 100 = 7 THEN 50 END, CASE WHEN lane.id %% 100 = 7 THEN 99 END,
       CASE WHEN lane.id %% 100 = 7 THEN gen_random_uuid() END,
       CASE WHEN lane.id %% 100 = 7 THEN now() + interval '1 hour' END
  FROM queen_partition lane
  JOIN queen_group held ON held.queue_id = lane.queue_id""",
    "dead letters": """
INSERT INTO queen_dead_letter (tenant_id, queue_id, partition_id, consumer_group, message_offset,
                               message_id, transaction_id, transaction_hash, payload, error,
                               retry_count, failed_at)
SELECT %(tenant)s, lane.queue_id, lane.id, 'readers', letter.no, gen_random_uuid(),
       to_json('t' || letter.no)::text, hashtextextended(to_json('t' || letter.no)::text, 0),
       convert_to(json_build_object('letter', letter.no, 'text', repeat('x', 150))::text, 'UTF8'),
       format('cause %%s: no answer from host %%s', letter.no %% 11, letter.no), 3,
       now() - make_interval(secs => letter.no * 2592000.0 / %(letters)s)
  FROM generate_series(0, %(letters)s - 1) AS letter(no)
  JOIN queen_partition lane
    ON lane.id = CASE WHEN letter.no %% 10 < 9 THEN (SELECT min(id) FROM queen_partition)
                      + letter.no / 10 %% 100
                 ELSE (SELECT min(id) FROM queen_partition)
                      + letter.no / 10 %% (%(queues)s * 100) END""",
    "history of queues": """
INSERT INTO queen_queue_counter (span, bucket, queue_id, server_id, push_requests, push_messages,
                                 pop_requests, pop_messages, ack_requests, ack_success,
                                 pop_lag_ms, pop_lag_count, pop_lag_max_ms, parked,
                                 parked_samples)
SELECT kept.span, queen_bucket_v1(now() - no * kept.span * interval '1 minute', kept.span),
       queue.id, 'broker-a', 10, 100, 10, 100, 10, 100, 500, 100, 30, 12, 12
  FROM (VALUES (1::smallint, 180), (15::smallint, 96), (60::smallint, 168),
               (360::smallint, 120)) AS kept(span, rows)
 CROSS JOIN LATERAL generate_series(0, kept.rows - 1) AS no
 CROSS JOIN queen_queue queue""",
    "history of retention": """
INSERT INTO queen_retention_history (bucket, queue_id, tenant_id, retention_messages, events)
SELECT queen_bucket_v1(now() - no * interval '1 minute', 1), queue.id, queue.tenant_id, 100, 1
  FROM generate_series(0, 119) AS no CROSS JOIN queen_queue queue""",
    "history of brokers": """
INSERT INTO queen_broker_history (bucket, server_id, push_messages, cpu_user, rss_bytes)
SELECT queen_bucket_v1(now() - no * interval '1 minute', 1), server, 1000, 2500, 200000000
  FROM generate_series(0, 10079) AS no CROSS JOIN unnest(ARRAY['a', 'b', 'c']) AS server""",
    "traces": """
INSERT INTO queen_trace (id, tenant_id, partition_uid, transaction_id, transaction_hash,
                         consumer_group, event_type, names, data, created_at)
SELECT gen_random_uuid(), %(tenant)s, lane.uid, to_json('t' || no)::text,
       hashtextextended(to_json('t' || no)::text, 0), '', 'info',
       json_build_array('all', 'name-' || no %% 1000)::text, '{"note":1}',
       now() - no * interval '1 second'
  FROM generate_series(0, %(others)s - 1) AS no
  JOIN queen_partition lane ON lane.id = (SELECT min(id) FROM queen_partition)
                                         + no %% (%(queues)s * 100)""",
    "names of traces": """
INSERT INTO queen_trace_name (tenant_id, name, created_at, trace_id, partition_uid,
                              transaction_hash)
SELECT tenant_id, listed.name, created_at, id, partition_uid, transaction_hash
  FROM queen_trace CROSS JOIN json_array_elements_text(names::json) AS listed(name)""",
    "entries": """
INSERT INTO queen_kv (tenant_id, ns, key, value, version)
SELECT %(tenant)s, 'ns-' || no %% 100, 'key-' || no, '{"value":1}', no + 1
  FROM generate_series(0, %(others)s - 1) AS no""",
    "timers": """
INSERT INTO queen_timer (tenant_id, queue, timer_key, partition, deliver_at, txn, message_id,
                         payload, shard)
SELECT %(tenant)s, (SELECT name FROM queen_queue ORDER BY id LIMIT 1), 'timer-' || no, 'p0',
       now() + interval '30 days', to_json('t' || no)::text, gen_random_uuid(), '{}', 0
  FROM generate_series(0, %(others)s - 1) AS no""",
    "queries": """
INSERT INTO queen_stream_query (tenant_id, name, source_queue, config_hash, state)
SELECT %(tenant)s, 'query-' || no, 'q0', 'hash', no
  FROM generate_series(1, 100) AS no""",
    "stream state": """
INSERT INTO queen_stream_state (state, partition_id, key, value)
SELECT 1, (SELECT min(id) FROM queen_partition), 'key-' || no, '{"count":1}'
  FROM generate_series(1, 1000) AS no""",
    "redrives": """
INSERT INTO queen_redrive (tenant_id, queue_id, queue_name, failed_to, rate, state, total, moved,
                           finished_at)
SELECT %(tenant)s, queue.id, queue.name, now(), 1000, 'done', 10, 10, now()
  FROM queen_queue queue""",
}
MEASURED = """
UPDATE queen_queue_statistics known
   SET segments = fresh.segments, bytes = fresh.bytes, bytes_at = clock_timestamp()
  FROM queen_queue_statistics counted
 CROSS JOIN LATERAL queen_segment_figures_v1(counted.queue_id, counted.total, 10000) AS fresh
 WHERE counted.queue_id = known.queue_id"""
KNOWN = """
SELECT lane.uid::text, message.literal, letter.transaction_id,
       (SELECT id::text FROM queen_stream_query WHERE state = 1),
       (SELECT id::text FROM queen_redrive LIMIT 1)
  FROM queen_partition lane
  JOIN variant_message message ON message.no = lane.id %% %s AND message.place = 50
  JOIN queen_dead_letter letter ON letter.partition_id = lane.id
 WHERE lane.id = (SELECT min(id) FROM queen_partition)
 LIMIT 1"""


def fill(db: psycopg.Connection[Any], volume: Volume, *, analyze: bool = True) -> Known:
    """Fill all tables; prints how many rows each got."""
    _variants(db)
    values = {
        "tenant": str(DEFAULT_TENANT),
        "queues": volume.queues,
        "letters": volume.letters,
        "others": volume.others,
        "variants": VARIANTS,
    }
    db.execute("SET synchronous_commit = off")
    for name, statement in TABLES.items():
        done = db.execute(statement, values)
        print(f"  {name}: {done.rowcount}", flush=True)
    if analyze:
        # What autovacuum comes to by itself within minutes of such a load.
        db.execute("VACUUM ANALYZE")
    row = db.execute(KNOWN, [VARIANTS]).fetchone()
    assert row is not None
    partition, message, letter, query, redrive = row
    return Known(partition, message.strip('"'), letter.strip('"'), query, redrive)


def measure_bytes(db: psycopg.Connection[Any]) -> None:
    """What the task of the retained bytes does within its first hour."""
    db.execute(MEASURED)


def _variants(db: psycopg.Connection[Any]) -> None:
    db.execute("CREATE TEMP TABLE variant (no integer, frames bytea, ends bytea)")
    db.execute(
        "CREATE TEMP TABLE variant_message (no integer, place integer, literal text, hash bigint)"
    )
    for no in range(VARIANTS):
        ids = [str(uuid.uuid4()) for _ in range(IN_SEGMENT)]
        literals = [frames.literal(f"order-{no}-{place}") for place in range(IN_SEGMENT)]
        payloads = [b'{"order":%d,"text":"%s"}' % (place, b"y" * 40) for place in range(IN_SEGMENT)]
        joined, ends = frames.join(
            frames.frames_of(ids, literals, [None] * IN_SEGMENT, None, payloads)
        )
        db.execute("INSERT INTO variant VALUES (%s, %s, %s)", [no, joined, ends])
        db.execute(
            "INSERT INTO variant_message SELECT %s, place - 1, literal,"
            " queen_txn_hash_v1(literal)"
            " FROM unnest(%s::text[]) WITH ORDINALITY AS one(literal, place)",
            [no, literals],
        )
