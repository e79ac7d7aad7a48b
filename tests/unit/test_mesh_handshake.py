"""Who is let into the mesh, and what a connection may do to us.

Method: real nodes on loopback, and between them a wire that records what passes and puts
bytes of the test's own into it.
"""

import asyncio
import contextlib
import struct

import msgspec
import pytest

from mesh.frames import HEARTBEAT, HELLO, frame
from mesh.handshake import BROKER, Introduction, dial, new_instance
from mesh.node import Node, NotAllowed, Settings
from tests.mesh_parts import (
    SECRET,
    Ear,
    Wire,
    at,
    frames_of,
    kind_of,
    knows,
    pushed,
    running,
    sealed_frames,
    until,
)

FOUR_GIB = struct.pack(">IB", 0xFFFF_FFFF, HELLO)


async def connect(node: Node) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", node.port)


async def closed(reader: asyncio.StreamReader) -> bytes:
    """What came until the other end closed."""
    data = bytearray()
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(10):
            while part := await reader.read(65_536):
                data += part
    return bytes(data)


async def test_two_nodes_that_know_the_secret_tell_each_other_hints():
    async with running("a") as a, running("b", peers=at(a.port)) as b:
        at_a, at_b = Ear(a), Ear(b)
        await until(lambda: knows(a, "b") and knows(b, "a"))
        a.offer(pushed(1, 10))
        b.offer(pushed(2, 20))
        await until(lambda: at_a.heard and at_b.heard)
        assert at_a.heard == [pushed(2, 20)]
        assert at_b.heard == [pushed(1, 10)]


@pytest.mark.parametrize("wrong", [b"another secret", b""])
async def test_a_wrong_secret_is_not_let_in_and_is_counted_at_both_ends(wrong: bytes):
    async with running("a") as a, running("b", peers=at(a.port), secret=wrong) as b:
        await until(lambda: a.counters.handshake_failures and b.counters.handshake_failures)
        assert knows(a) and knows(b)
        assert b.status()["handshake_failures"] == b.status()["signature_failures"] > 0


async def test_a_listener_that_does_not_know_the_secret_is_not_believed():
    """It lets everybody in; the dialler still sees that its proof is not one."""

    async def let_in(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        challenge = msgspec.msgpack.encode(
            {"introduction": msgspec.msgpack.encode(own), "proof": b""}
        )
        writer.write(frame(1, challenge))
        await reader.readexactly(5)
        writer.write(frame(3, msgspec.msgpack.encode({"introduction": b"", "proof": b"x" * 32})))

    own = Introduction(server_id="liar", instance=new_instance(), nonce=b"n" * 32, role=BROKER)
    server = await asyncio.start_server(let_in, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, running("b", peers=at(port)) as b:
        await until(lambda: b.counters.handshake_failures)
        assert knows(b)


async def test_a_recorded_hello_is_worth_nothing_the_second_time():
    async with running("a") as a, Wire(a.port) as wire, running("b", peers=at(wire.port)) as b:
        await until(lambda: knows(a, "b") and knows(b, "a"))
        recorded = bytes(wire.up)
        assert kind_of(frames_of(recorded)[0]) == HELLO
        failures = a.counters.handshake_failures
        reader, writer = await connect(a)
        writer.write(recorded)
        answers = frames_of(await closed(reader))
        assert len(answers) == 1, "the challenge, and no welcome"
        assert a.counters.handshake_failures == failures + 1
        assert knows(a, "b")


@pytest.mark.parametrize("direction", ["up", "down"])
async def test_a_frame_that_is_sent_again_ends_the_session(direction: str):
    async with running("a") as a, Wire(a.port) as wire, running("b", peers=at(wire.port)) as b:
        await until(lambda: knows(a, "b") and knows(b, "a"))
        talker, ear = (b, Ear(a)) if direction == "up" else (a, Ear(b))
        hearer = a if direction == "up" else b
        talker.offer(pushed(1, 10))
        await until(lambda: ear.heard)
        replayed = sealed_frames(getattr(wire, direction))[-1]
        connections = wire.connections
        (wire.inject_up if direction == "up" else wire.inject_down)(replayed)
        await until(lambda: hearer.counters.forged == 1)
        await until(lambda: wire.connections > connections and knows(a, "b") and knows(b, "a"))
        assert ear.queue_ids() == [1], "it was heard once"
        assert hearer.status()["sequence_rejections"] == 0, "by contract"
        assert hearer.status()["handshake_failures"] >= 1


async def test_a_frame_of_an_older_session_is_not_heard():
    async with running("a") as a, Wire(a.port) as wire, running("b", peers=at(wire.port)) as b:
        await until(lambda: knows(a, "b") and knows(b, "a"))
        ear = Ear(a)
        b.offer(pushed(1, 10))
        await until(lambda: ear.heard)
        old = sealed_frames(wire.up)
        wire.cut()
        await until(lambda: wire.connections > 1 and knows(a, "b"))
        wire.inject_up(b"".join(old))
        await until(lambda: a.counters.forged == 1)
        assert ear.queue_ids() == [1]


async def test_a_frame_that_is_sent_back_to_its_sender_is_not_heard():
    async with running("a") as a, Wire(a.port) as wire, running("b", peers=at(wire.port)) as b:
        await until(lambda: knows(a, "b") and knows(b, "a"))
        ear = Ear(b)
        b.offer(pushed(1, 10))
        await until(lambda: len(sealed_frames(wire.up)) > 0)
        wire.inject_down(sealed_frames(wire.up)[-1])
        await until(lambda: b.counters.forged == 1)
        assert not ear.heard


async def test_a_frame_with_one_bit_changed_is_not_heard():
    async with running("a") as a, Wire(a.port) as wire, running("b", peers=at(wire.port)) as b:
        await until(lambda: knows(a, "b") and knows(b, "a"))
        ear = Ear(a)
        wire.frozen = True
        taken = asyncio.get_running_loop().create_future()
        pump = wire.inject_up

        # The next frame that b writes is kept back, changed, and sent on.
        session = next(iter(b._sessions))
        write = session._channel.write

        async def changed(data: bytes) -> None:
            if not taken.done():
                taken.set_result(None)
                pump(data[:-1] + bytes([data[-1] ^ 1]))
            await write(data)

        session._channel.write = changed
        b.offer(pushed(1, 10))
        await until(lambda: a.counters.forged == 1)
        assert not ear.heard


@pytest.mark.parametrize(
    "data",
    [
        FOUR_GIB,
        struct.pack(">I", 0) + b"\x02",
        struct.pack(">IB", 5000, HELLO),
        b"GET / HTTP/1.1\r\nHost: queen\r\n\r\n",
        bytes(range(256)) * 64,
        frame(HELLO, b"no msgpack \xff"),
        frame(HELLO, msgspec.msgpack.encode({"introduction": "text", "proof": 3})),
        frame(HELLO, b"\x91" * 4000),
        frame(HEARTBEAT, b""),
        frame(HELLO, msgspec.msgpack.encode({"introduction": b"", "proof": b""})),
    ],
    ids=["4 GiB", "0", "long", "http", "bytes", "junk", "types", "deep", "early", "empty"],
)
async def test_whoever_does_not_speak_as_we_do_is_cut_off_at_once(data: bytes):
    async with running("a", handshake_s=30.0) as a, running("b", peers=at(a.port)) as b:
        await until(lambda: knows(a, "b"))
        reader, writer = await connect(a)
        writer.write(data)
        await closed(reader)
        await until(lambda: a.counters.handshake_failures == 1)
        assert knows(a, "b") and knows(b, "a")


async def test_a_4_gib_length_behind_the_handshake_ends_the_session():
    async with running("a") as a, Wire(a.port) as wire, running("b", peers=at(wire.port)) as b:
        await until(lambda: knows(a, "b") and knows(b, "a"))
        wire.inject_up(FOUR_GIB)
        await until(lambda: wire.connections == 2 and knows(a, "b"))


async def test_a_byte_now_and_then_does_not_keep_the_handshake_alive():
    async with running("a", handshake_s=0.3) as a:
        reader, writer = await connect(a)
        ended = asyncio.create_task(closed(reader))
        with contextlib.suppress(ConnectionError):
            while not ended.done():
                writer.write(b"\x00")
                await asyncio.sleep(0.02)
        await ended
        assert a.counters.handshake_failures == 1


async def test_a_byte_now_and_then_does_not_keep_a_session_alive():
    """Only whole frames are a sign of life."""
    async with running("a", dead_after_s=0.4) as a:
        reader, writer = await connect(a)
        own = Introduction(server_id="slow", instance=new_instance(), nonce=b"", heartbeat_ms=100)
        _, channel = await dial(reader, writer, SECRET, own)
        await until(lambda: knows(a, "slow"))
        ended = asyncio.create_task(closed(reader))
        with contextlib.suppress(ConnectionError):
            for byte in channel.seal(HEARTBEAT, b"x" * 10_000):
                if ended.done():
                    break
                writer.write(bytes([byte]))
                await asyncio.sleep(0.02)
        await ended
        assert knows(a)


async def test_those_who_have_not_proved_themselves_are_few():
    async with running("a", handshake_s=30.0) as a, contextlib.AsyncExitStack() as stack:
        kept = []
        for _ in range(70):
            streams = await connect(a)
            kept.append(streams)
            stack.callback(streams[1].transport.abort)
        await until(lambda: a.counters.handshake_failures == 70 - 64)


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
async def test_without_a_secret_only_loopback_is_listened_on(address: str):
    node = Node(Settings(server_id="a", bind_addr=address, port=0))
    with pytest.raises(NotAllowed):
        await node.listen()
    assert not node.status()["listening"]


@pytest.mark.parametrize("allowed", [{"secret": SECRET}, {"insecure": True}])
async def test_a_secret_or_a_word_of_the_operator_opens_it(allowed: dict):
    node = Node(Settings(server_id="a", bind_addr="0.0.0.0", port=0, **allowed))
    try:
        await node.listen()
        assert node.status()["listening"]
    finally:
        await node.close()
