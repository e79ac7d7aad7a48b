"""Sealing: encrypt the messages of a parcel before they reach a table.

A parcel says with a flag a message which of its payloads are in an envelope already: one
that was sealed for a call that failed, or that comes back from a spool, is not sealed
twice. Sealing changes the parcel, so that it is done once however often it is sent.

Imports frames, encryption. Used by combine.py, parcels.py and services/{transaction,spool}.py.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from brokers.encryption import KeyRing, bounded
from brokers.frames import FLAG_ENCRYPTED

if TYPE_CHECKING:
    from brokers.store.parcels import Parcel


def is_sealed(parcels: Sequence["Parcel"]) -> bool:
    """Whether no payload of them is left to seal."""
    return all(
        parcel.sealed is not None and all(flag & FLAG_ENCRYPTED for flag in parcel.sealed)
        for parcel in parcels
    )


def flags(parcels: Sequence["Parcel"]) -> bytes | None:
    """The flags of a segment: a byte a message, or none where nothing is flagged."""
    for parcel in parcels:
        if parcel.sealed is not None:
            return b"".join([one.sealed or bytes(len(one.ids)) for one in parcels])
    return None


def flags_of(messages: Sequence[tuple["Parcel", int]]) -> bytes | None:
    """The flags of single messages, each by its parcel and its position there."""
    if all(parcel.sealed is None for parcel, _ in messages):
        return None
    return bytes([parcel.sealed[at] if parcel.sealed else 0 for parcel, at in messages])


def seal(keys: KeyRing, parcels: Sequence["Parcel"]) -> None:
    """Put every payload into an envelope that is not in one. Raises NoKey."""
    for parcel in parcels:
        old = parcel.sealed or bytes(len(parcel.ids))
        parcel.frames = [
            frame if flag & FLAG_ENCRYPTED else keys.seal_frame(frame)
            for frame, flag in zip(parcel.frames, old, strict=True)
        ]
        parcel.sealed = bytes([flag | FLAG_ENCRYPTED for flag in old])


async def seal_bounded(keys: KeyRing, parcels: Sequence["Parcel"]) -> None:
    """`seal`, beside the event loop where there is much to do."""
    left = [parcel for parcel in parcels if not is_sealed([parcel])]
    await bounded(lambda: seal(keys, left), sum(parcel.size_bytes for parcel in left))
