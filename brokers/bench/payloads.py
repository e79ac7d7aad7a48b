"""What is pushed: JSON payloads of a fixed size, and names of queues' partitions.

Imports nothing of ours. Used by roles.py, seeding.py, direct.py.
"""

import json

PAYLOAD_BYTES = 256
STAMP = b'{"at":"'
STAMP_DIGITS = 20


def payload(size: int = PAYLOAD_BYTES) -> bytes:
    """A JSON object of exactly `size` bytes."""
    frame = b'{"kind":"bench","text":""}'
    text = b"abcdefghijklmnopqrstuvwxyz " * (size // 27 + 1)
    return b'{"kind":"bench","text":"' + text[: max(0, size - len(frame))] + b'"}'


def stamped(now_ns: int) -> bytes:
    """A payload that says when it was sent; its length is always the same."""
    return STAMP + b"%020d" % now_ns + b'","text":"' + b"x" * 217 + b'"}'


def stamp_of(body: bytes) -> int | None:
    """When the first stamped payload in an answer was sent."""
    at = body.find(STAMP)
    return int(body[at + len(STAMP) : at + len(STAMP) + STAMP_DIGITS]) if at >= 0 else None


def partition_name(number: int) -> str:
    return f"p{number}"


def item(queue: str, partition: str, data: bytes) -> bytes:
    head = f'{{"queue":{json.dumps(queue)},"partition":{json.dumps(partition)},"payload":'
    return head.encode() + data + b"}"


def push_body(items: list[bytes]) -> bytes:
    return b'{"items":[' + b",".join(items) + b"]}"
