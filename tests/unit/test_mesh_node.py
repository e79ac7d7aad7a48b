"""Links, hubs and the local hub: who hears what, how often, and what a dead peer costs.

Method: real nodes on loopback; time is only waited for where a time limit is under test.
"""

import asyncio
import contextlib
import stat
from pathlib import Path

import msgspec

from mesh.frames import HEARTBEAT
from mesh.handshake import Introduction, dial, new_instance
from mesh.hints import Freed, Hint, Look, Passed, QueueChanged, Ready, Switched, Told
from mesh.local import LocalHub, LocalLink
from mesh.watching import line, watch
from tests.mesh_parts import SECRET, Ear, Wire, at, free_port, knows, pushed, running, until


async def peer_by_hand(port: int, name: str = "by hand"):
    """A session whose frames the test writes itself."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    own = Introduction(server_id=name, instance=new_instance(), nonce=b"", heartbeat_ms=60_000)
    _, channel = await dial(reader, writer, SECRET, own)
    return channel


async def test_every_kind_of_hint_arrives_as_it_was_offered():
    hints = [
        pushed(1, 10, 11),
        Ready(1, "group", {10, 11}),
        Ready(1, None, {12}),
        Ready(1, "other", set(), True),
        Freed(1, "group", {13}),
        QueueChanged("tenant", "orders", True, 7),
        Switched("maintenance", True),
        Switched("popMaintenance", False),
        Look("tenant", "orders"),
    ]
    async with running("a") as a, running("b", peers=at(a.port)) as b:
        ear = Ear(a)
        await until(lambda: knows(b, "a"))
        for hint in hints:
            b.offer(hint)
        await until(lambda: len(ear.heard) == len(hints))
        assert ear.heard == hints


async def test_a_frame_type_from_the_future_is_skipped_and_the_session_goes_on():
    async with running("a") as a:
        ear = Ear(a)
        channel = await peer_by_hand(a.port)
        await channel.write(channel.seal(99, b"whatever that will be"))
        await channel.write(channel.seal(16, b"not what we understand by it"))
        known = {"tenant": "t", "queue": "q", "queue_id": 5, "partitions": {1: "p"}}
        await channel.write(channel.seal(16, msgspec.msgpack.encode({**known, "later": [1]})))
        await until(lambda: ear.heard)
        assert ear.queue_ids() == [5]
        assert a.status()["frames_skipped"] == 2
        channel.close()


async def test_two_links_between_a_pair_tell_a_hint_once():
    ports = free_port(), free_port()
    async with (
        running("a", port=ports[0], peers=at(ports[1])) as a,
        running("b", port=ports[1], peers=at(ports[0])) as b,
    ):
        at_a, at_b = Ear(a), Ear(b)
        await until(lambda: len(a._sessions) == 2 and len(b._sessions) == 2)
        for number in range(20):
            a.offer(pushed(number, 1))
            b.offer(pushed(100 + number, 1))
        await until(lambda: len(at_a.heard) >= 20 and len(at_b.heard) >= 20)
        a.offer(pushed(50, 1))
        await until(lambda: 50 in at_b.queue_ids())
        assert sorted(at_b.queue_ids()) == [*range(20), 50]
        assert sorted(at_a.queue_ids()) == [*range(100, 120)]
        assert a.status()["servers_alive"] == 1


async def test_a_node_among_its_own_peers_is_neither_dialled_for_ever_nor_dead():
    port = free_port()
    async with running("a", port=port, peers=at(port)) as a:
        await until(lambda: a.status()["peers"][0]["self"])
        assert a.status()["servers_dead"] == 0
        assert a.counters.handshake_failures == 0
        a.offer(pushed(1, 1))
        assert a.status()["messages_queued"] == 0


async def test_a_peer_that_comes_back_at_another_address_is_found():
    """The name is resolved at each dial; on loopback every 127.x.y.z is ours."""
    addresses = ["127.0.0.1"]

    async def resolve(host: str, port: int) -> list[str]:
        assert host == "queen-b"
        return list(addresses)

    port = free_port()
    async with running("a", listen=False, peers=(("queen-b", port),), resolve=resolve) as a:
        async with running("b", port=port, bind_addr="127.0.0.1"):
            await until(lambda: knows(a, "b"))
            assert a.status()["peers"][0]["resolved_ip"] == "127.0.0.1"
        addresses[:] = ["127.0.0.9", "127.0.0.2"]
        async with running("b", port=port, bind_addr="127.0.0.2") as b:
            ear = Ear(b)
            await until(lambda: knows(a, "b"))
            assert a.status()["peers"][0]["resolved_ip"] == "127.0.0.2"
            a.offer(pushed(1, 1))
            await until(lambda: ear.heard)


async def test_a_name_that_does_not_resolve_is_tried_again():
    calls = []

    async def resolve(host: str, port: int) -> list[str]:
        calls.append(host)
        if len(calls) == 1:
            raise OSError("no such name")
        if len(calls) == 2:
            raise UnicodeError("label too long")
        return ["127.0.0.1"]

    async with running("b") as b, running("a", peers=(("name", b.port),), resolve=resolve) as a:
        await until(lambda: knows(a, "b"))


async def test_a_half_open_connection_is_noticed_and_dialled_anew():
    async with running("a") as a, Wire(a.port) as wire, running("b", peers=at(wire.port)) as b:
        await until(lambda: knows(a, "b") and knows(b, "a"))
        wire.frozen = True
        await until(lambda: knows(a) and knows(b))
        assert b.status()["servers_dead"] == 1
        wire.frozen = False
        await until(lambda: knows(a, "b") and knows(b, "a"))


async def test_a_peer_that_stands_still_costs_a_bounded_outbox_and_is_counted():
    async with running("b", dead_after_s=30.0) as b:
        channel = await peer_by_hand(b.port)
        await until(lambda: knows(b, "by hand"))
        # It takes nothing: what the kernel holds fills up, then the outbox.
        text = "x" * 400
        for number in range(40_000):
            b.offer(pushed(number, 1, queue=text))
            if number % 500 == 0:
                await asyncio.sleep(0)
        status = b.status()
        assert status["messages_queued"] <= 1024
        assert status["messages_dropped"] > 0
        total = status["messages_sent"] + status["messages_queued"] + status["messages_dropped"]
        assert total == 40_000
        channel.close()


async def test_a_peer_that_was_away_long_is_not_told_old_news(monkeypatch):
    monkeypatch.setattr("mesh.link.STALE_S", 0.0)
    port = free_port()
    async with running("a", listen=False, peers=at(port)) as a:
        a.offer(pushed(1, 1))
        a.offer(QueueChanged("t", "q"))
        assert a.status()["messages_queued"] == 2
        async with running("b", port=port) as b:
            ear = Ear(b)
            await until(lambda: ear.heard)
            assert ear.heard == [QueueChanged("t", "q")]
            assert a.status()["messages_dropped"] == 1


async def test_a_flood_of_hints_leaves_everybody_else_their_turns():
    """The reader gives the loop back after a slice of time, however much lies there."""
    async with running("a") as a, running("b", peers=at(a.port)) as b:
        await until(lambda: knows(b, "a"))
        channel = await peer_by_hand(a.port)
        heard = 0

        def count(hint: Hint) -> None:
            nonlocal heard
            heard += 1

        a.receivers.append(count)
        flood = b"".join(
            channel.seal(21, b"\x82\xa6tenant\xa1t\xa5queue\xa1q") for _ in range(20_000)
        )
        writing = asyncio.create_task(channel.write(flood))
        most_in_a_turn, before = 0, 0
        while heard < 20_000:
            await asyncio.sleep(0)
            most_in_a_turn, before = max(most_in_a_turn, heard - before), heard
        await writing
        assert most_in_a_turn < 2000
        channel.close()


async def test_brokers_that_name_only_the_hub_all_hear_each_other_once_and_never_themselves():
    async with contextlib.AsyncExitStack() as stack:
        hub = await stack.enter_async_context(running("hub", hub=True))
        a, b, c = [
            await stack.enter_async_context(running(name, peers=at(hub.port)))
            for name in ("a", "b", "c")
        ]
        nodes = {"a": a, "b": b, "c": c}
        ears = {name: Ear(node) for name, node in nodes.items()}
        await until(lambda: knows(hub, "a", "b", "c"))
        for number, node in enumerate(nodes.values()):
            node.offer(pushed(number, 1))
        await until(lambda: all(len(ear.heard) == 2 for ear in ears.values()))
        a.offer(pushed(9, 1))
        await until(lambda: 9 in ears["b"].queue_ids() and 9 in ears["c"].queue_ids())
        assert sorted(ears["a"].queue_ids()) == [1, 2]
        assert sorted(ears["b"].queue_ids()) == [0, 2, 9]
        assert sorted(ears["c"].queue_ids()) == [0, 1, 9]


async def test_a_marked_frame_is_not_passed_on_a_second_time():
    """Two hubs that name each other would else send it round for ever."""
    ports = free_port(), free_port()
    async with (
        running("hub1", hub=True, port=ports[0], peers=at(ports[1])) as one,
        running("hub2", hub=True, port=ports[1], peers=at(ports[0])) as two,
        running("a", peers=at(ports[0])) as a,
        running("b", peers=at(ports[1])) as b,
    ):
        ears = {node: Ear(node) for node in (one, two, a, b)}
        await until(lambda: knows(one, "a", "hub2") and knows(two, "b", "hub1"))
        a.offer(pushed(1, 1))
        await until(lambda: ears[two].heard)
        b.offer(pushed(2, 1))
        await until(lambda: ears[one].queue_ids() == [1, 2])
        assert ears[two].queue_ids() == [1, 2] or ears[two].queue_ids() == [2, 1]
        assert ears[a].queue_ids() == [] and ears[b].queue_ids() == []


async def test_what_lasts_is_told_after_an_absence_whoever_dials_first():
    may_dial = asyncio.Event()

    async def resolve(host: str, port: int) -> list[str]:
        await may_dial.wait()
        return [host]

    port = free_port()
    async with running("a", peers=at(port), resolve=resolve) as a:
        a.offer(QueueChanged("tenant", "orders"))
        a.offer(pushed(1, 1))
        async with running("b", port=port, peers=at(a.port)) as b:
            ear = Ear(b)
            await until(lambda: knows(a, "b"))
            a.offer(pushed(2, 1))
            await until(lambda: ear.queue_ids() == [2])
            may_dial.set()
            await until(lambda: len(ear.heard) == 2)
            assert ear.heard[1] == QueueChanged("tenant", "orders")
            assert a.status()["messages_queued"] == 0


async def test_a_watcher_sees_what_passes_and_is_no_peer():
    async with contextlib.AsyncExitStack() as stack:
        hub = await stack.enter_async_context(running("hub", hub=True))
        a, b = [
            await stack.enter_async_context(running(name, peers=at(hub.port)))
            for name in ("a", "b")
        ]
        await until(lambda: knows(hub, "a", "b") and knows(a, "hub"))
        seen: list[Hint] = []
        watching = asyncio.create_task(watch("127.0.0.1", hub.port, SECRET, seen.append))
        await until(lambda: seen)
        assert isinstance(seen[0], Told) and b'"servers_alive": 2' in seen[0].document
        ear = Ear(b)
        a.offer(pushed(3, 1))
        await until(lambda: ear.heard and len(seen) == 2)
        assert isinstance(seen[1], Passed) and seen[1].origin == "a"
        assert line(seen[1]).startswith("a: pushed tenant='tenant' queue='orders' queue_id=3")
        assert knows(hub, "a", "b")
        told = hub.status()
        assert (told["messages_received"], told["messages_sent"]) == (1, 1), "the watcher counts"
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def test_heartbeats_are_not_counted_as_messages():
    async with running("a", heartbeat_s=0.05) as a, running("b", peers=at(a.port)) as b:
        await until(lambda: knows(b, "a"))
        session = next(iter(b._sessions))
        heard_at = session.heard_at
        await until(lambda: session.heard_at > heard_at)
        assert a.status()["messages_sent"] == b.status()["messages_received"] == 0
        assert HEARTBEAT < 16


# Inside one host


async def test_a_workers_hint_reaches_the_other_workers_and_the_peers_and_not_itself(
    tmp_path: Path,
):
    async with running("parent") as node, running("far", peers=at(node.port)) as far:
        hub = LocalHub(tmp_path / "mesh", node)
        await hub.start()
        heard: list[list[Hint]] = [[], []]
        links = [LocalLink(tmp_path / "mesh", f"w/{no}", heard[no].append) for no in range(2)]
        tasks = [asyncio.create_task(link.run()) for link in links]
        ear = Ear(far)
        try:
            assert stat.S_IMODE((tmp_path / "mesh").stat().st_mode) == 0o600
            await until(lambda: hub.workers == 2 and knows(far, "parent"))
            links[0].offer(pushed(1, 1))
            await until(lambda: heard[1] and ear.heard)
            far.offer(pushed(2, 1))
            await until(lambda: heard[0] and len(heard[1]) == 2)
            assert heard[0] == [pushed(2, 1)]
            assert heard[1] == [pushed(1, 1), pushed(2, 1)]
            assert ear.heard == [pushed(1, 1)]
            await until(lambda: links[0].status().get("servers_alive") == 1)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await hub.stop()
        assert not (tmp_path / "mesh").exists()


async def test_workers_without_peers_hear_each_other_and_dial_a_hub_that_comes_later(
    tmp_path: Path,
):
    heard: list[Hint] = []
    links = [
        LocalLink(tmp_path / "mesh", "w/0", lambda hint: None),
        LocalLink(tmp_path / "mesh", "w/1", heard.append),
    ]
    tasks = [asyncio.create_task(link.run()) for link in links]
    try:
        for _ in range(2):
            hub = LocalHub(tmp_path / "mesh")
            await hub.start()
            await until(lambda hub=hub: hub.workers == 2)
            heard.clear()
            links[0].offer(pushed(1, 1))
            await until(lambda: heard)
            assert links[0].status() == {"enabled": False, "reason": "no_peers"}
            await hub.stop()
            await until(lambda: not links[0].connected and not links[1].connected)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_what_a_receiver_raises_ends_nothing(tmp_path: Path):
    async with running("a") as a, running("b", peers=at(a.port)) as b:

        def broken(hint: Hint) -> None:
            raise ValueError("no")

        a.receivers.append(broken)
        ear = Ear(a)
        await until(lambda: knows(b, "a"))
        b.offer(pushed(1, 1))
        b.offer(pushed(2, 1))
        await until(lambda: a.status()["messages_received"] == 2)
        assert knows(a, "b") and ear.heard == []
