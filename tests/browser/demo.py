"""A broker that looks like one at work, for the pictures of the documentation.

Used by test_dashboard.py when pictures are asked for.
"""

import contextlib
import random
import threading
import time
from collections.abc import Iterator

import httpx

QUEUES = {
    "shop.orders": ("customer", 24, 9),
    "shop.payments": ("account", 12, 5),
    "mail.outbox": ("domain", 8, 4),
    "search.index": ("shard", 6, 7),
    "billing.invoices": ("account", 10, 2),
    "warehouse.stock": ("site", 4, 3),
}
GROUPS = {
    "shop.orders": ("fulfilment", "analytics", "fraud-check"),
    "shop.payments": ("ledger", "analytics"),
    "mail.outbox": ("sender",),
    "search.index": ("indexer",),
    "billing.invoices": ("accounting",),
    "warehouse.stock": ("planner",),
}
FAILING = 0.04


@contextlib.contextmanager
def at_work(url: str, warm_up_s: float = 75.0) -> Iterator[None]:
    """Producers and consumers for as long as it lasts; it begins to look lively after a while."""
    done = threading.Event()
    dice = random.Random(4)
    workers = [threading.Thread(target=_produce, args=(url, done, dice))]
    for queue, groups in GROUPS.items():
        for number, group in enumerate(groups):
            pace_s = 0.35 + 0.45 * number
            workers.append(
                threading.Thread(target=_consume, args=(url, queue, group, pace_s, done))
            )
    with httpx.Client(base_url=url, timeout=60) as http:
        for queue in QUEUES:
            options = {"leaseTime": 30, "retryLimit": 0, "retentionEnabled": True}
            http.post("/api/v1/configure", json={"queue": queue, "options": options})
    for worker in workers:
        worker.start()
    try:
        time.sleep(warm_up_s)
        yield
    finally:
        done.set()
        for worker in workers:
            worker.join()


def _produce(url: str, done: threading.Event, dice: random.Random) -> None:
    with httpx.Client(base_url=url, timeout=60) as http:
        number = 0
        while not done.wait(0.25):
            wave = 1.0 + 0.5 * dice.random()
            items = []
            for queue, (what, partitions, pace) in QUEUES.items():
                for _ in range(round(pace * wave)):
                    number += 1
                    payload = {"id": number, "amount": f"{dice.uniform(5, 400):.2f}"}
                    partition = f"{what}-{dice.randrange(partitions):02}"
                    items.append({"queue": queue, "partition": partition, "payload": payload})
            http.post("/api/v1/push", json={"items": items})


def _consume(url: str, queue: str, group: str, pace_s: float, done: threading.Event) -> None:
    dice = random.Random(group)
    asked = {
        "consumerGroup": group,
        "subscriptionMode": "all",
        "batch": 14,
        "partitions": 4,
        "wait": "true",
        "timeout": 2000,
    }
    with httpx.Client(base_url=url, timeout=60) as http:
        while not done.wait(pace_s):
            answer = http.get(f"/api/v1/pop/queue/{queue}", params=asked)
            if answer.status_code != 200:
                continue
            acks = [
                {
                    "transactionId": one["transactionId"],
                    "partitionId": one["partitionId"],
                    "leaseId": one["leaseId"],
                    "status": "failed" if dice.random() < FAILING else "completed",
                    "error": "the address is not known",
                }
                for one in answer.json()["messages"]
            ]
            body = {"consumerGroup": group, "acknowledgments": acks}
            http.post("/api/v1/ack/batch", json=body)
