"""The operator's switches: what is paused for everybody, and throwing it on or off.

Imports deeds, services/switches, site. Registered by registered.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse

from brokers.admin import deeds
from brokers.admin.deeds import Deed, Target, Work
from brokers.admin.site import Page, site
from brokers.flow.switches import (
    KV,
    POP_MAINTENANCE,
    PUSH_MAINTENANCE,
    TIMERS_FIRE,
    TIMERS_SCHEDULE,
)
from brokers.runtime import Broker
from brokers.services import switches
from brokers.services.audit import Done
from brokers.services.switches import SwitchState

SEES, THROWS = "brokers.view_system", "brokers.change_system"


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """`key` is what the services call it, `field` where its state is told; `usual` is how it
    is when nobody has thrown it."""

    key: str
    field: str
    title: str
    usual: bool
    on: str
    off: str


SWITCHES: Mapping[str, Switch] = {
    "push-maintenance": Switch(
        key=PUSH_MAINTENANCE,
        field="push_maintenance",
        title="Push maintenance",
        usual=False,
        on="Every push of every tenant goes to the brokers' disk spools, which are not drained;"
        " dead letters are not replayed.",
        off="Pushes go to PostgreSQL again, and the spools are drained.",
    ),
    "pop-maintenance": Switch(
        key=POP_MAINTENANCE,
        field="pop_maintenance",
        title="Pop maintenance",
        usual=False,
        on="Every pop of every tenant is answered with nothing, those that wait at once.",
        off="Pops are answered with messages again.",
    ),
    "kv": Switch(
        key=KV,
        field="kv_enabled",
        title="Key/value state",
        usual=True,
        on="Key/value state is read and written again.",
        off="Every call of key/value state is refused, of every tenant.",
    ),
    "timers-schedule": Switch(
        key=TIMERS_SCHEDULE,
        field="timers_schedule_enabled",
        title="Scheduling of timers",
        usual=True,
        on="Timers are scheduled again.",
        off="No timer is scheduled or cancelled any more; those that are due fire.",
    ),
    "timers-fire": Switch(
        key=TIMERS_FIRE,
        field="timers_fire_enabled",
        title="Firing of timers",
        usual=True,
        on="What is due fires now.",
        off="No timer fires; what becomes due meanwhile fires late.",
    ),
}


def overview(request: HttpRequest) -> HttpResponse:
    state = deeds.ask(switches.state_now)
    rows = [
        {
            "title": one.title,
            "on": getattr(state, one.field),
            "usual": getattr(state, one.field) == one.usual,
            "means": one.on if getattr(state, one.field) else one.off,
            "address": _address(name, not getattr(state, one.field)),
        }
        for name, one in SWITCHES.items()
    ]
    return site().render(
        request,
        "console/switches.html",
        "Maintenance switches",
        rows=rows,
        may_throw=request.user.has_perm(THROWS),
    )


def throw(request: HttpRequest, name: str, way: str) -> HttpResponse:
    switch = SWITCHES.get(name)
    if switch is None or way not in ("on", "off"):
        raise Http404
    to = way == "on"
    deed = Deed(
        name=f"switch {way}",
        title=f"Switch {way}",
        permission=THROWS,
        hits=lambda thing: lambda broker: _consequence(broker, switch, to),
        work=lambda thing, answers: _throwing(switch, to),
        destroys=to is not switch.usual,
    )
    target = Target(thing=switch, label=switch.title, tenant=None, back=reverse("admin:switches"))
    return deeds.perform(request, deed, target)


async def _consequence(broker: Broker, switch: Switch, to: bool) -> str:
    state: SwitchState = await switches.state_now(broker)
    if getattr(state, switch.field) is to:
        return f"It is {'on' if to else 'off'} already."
    return switch.on if to else switch.off


def _throwing(switch: Switch, to: bool) -> Work:
    async def work(broker: Broker) -> Done:
        written = await switches.throw(broker, {switch.key: to})
        text = f"{switch.title} is {'on' if to else 'off'}."
        if not written:
            text += " At this broker only: PostgreSQL did not take it for the others yet."
        return Done(text=text, hits=1, complete=written)

    return work


def _address(name: str, to: bool) -> str:
    return reverse("admin:switch", kwargs={"name": name, "way": "on" if to else "off"})


site().add_page(
    Page(
        name="switches",
        title="Maintenance switches",
        route="switches/",
        permission=SEES,
        view=overview,
    )
)
site().add_page(
    Page(
        name="switch",
        title="Maintenance switch",
        route="switches/<slug:name>/<slug:way>/",
        permission=SEES,
        view=throw,
        listed=False,
    )
)
