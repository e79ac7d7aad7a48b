/* The dashboard: lays each picture on the page. What failed is told as failed, with its reason and
   for how long; nothing that is not known is written as a number. */
(function () {
  "use strict";
  const { exact, rate, span, bytes, percent, UNKNOWN } = Figures;
  const OLD_TX_S = 300;
  const SILENT_S = 150;
  const page = document.getElementById("dashboard");
  const byId = (id) => document.getElementById(id);

  function put(id, text, tone) {
    const place = byId(id);
    if (place.textContent !== text) place.textContent = text;
    if (tone) place.dataset.tone = tone;
    else delete place.dataset.tone;
  }

  /** The value of a part; null while it is not known. The page says why where it is shown. */
  function part(picture, name) {
    const told = picture.parts[name];
    const places = document.querySelectorAll(`[data-part~="${name}"]`);
    const failed = Boolean(told) && !told.ok;
    for (const place of places) {
      place.classList.toggle("failed", failed);
      const reason = place.querySelector(".reason");
      const text = failed ? `Unknown: ${told.error} (for ${span((picture.at - told.since) / 1000)})` : "";
      if (reason && reason.textContent !== text) reason.textContent = text;
      if (reason) reason.hidden = !failed;
    }
    return told && told.ok ? told.value : null;
  }

  function queueAddress(name, tenant) {
    const query = new URLSearchParams();
    if (tenant) query.set("tenant", tenant);
    const odd = name === "" || name.split("/").some((one) => one === "" || one === "." || one === "..");
    if (odd) {
      query.set("name", name);
      return `${page.dataset.queues}?${query}`;
    }
    const path = name.split("/").map(encodeURIComponent).join("/");
    const tail = query.toString();
    return `${page.dataset.queues}${path}${tail ? `?${tail}` : ""}`;
  }

  const queueCell = (name, tenant, paused) => ({
    text: name === "" ? "(empty name)" : name,
    href: queueAddress(name, tenant),
    note: [tenant ? `tenant ${tenant}` : "", paused ? "paused" : ""].filter(Boolean).join(", "),
  });

  // The figures at the top

  function tiles(picture) {
    const traffic = part(picture, "traffic");
    const totals = part(picture, "totals");
    const timers = part(picture, "timers");
    const rates = traffic && traffic.rates;
    const measured = (name) => {
      if (!traffic) return UNKNOWN;
      return rates ? rate(rates[name]) : "measuring";
    };
    put("tile-pushed", measured("pushed"));
    put("tile-popped", measured("popped"));
    put("tile-acked", measured("acked"));
    put("tile-failed", `refused ${rates ? rate(rates.failed) : UNKNOWN}/s`, rates && rates.failed ? "warn" : "");
    put("tile-pushed-total", traffic ? `${exact(traffic.totals.pushed)} since the start` : "");
    put("tile-popped-total", traffic ? `${exact(traffic.totals.popped)} since the start` : "");
    const counted = totals && totals.counted_s !== null ? totals : null;
    const when = totals ? (counted ? `counted ${totals.counted_s < 1 ? "just now" : `${span(totals.counted_s)} ago`}` : "not counted yet") : "";
    put("tile-pending", counted ? exact(counted.pending) : UNKNOWN);
    put("tile-pending-note", when);
    put("tile-processing", counted ? `${exact(counted.processing)} in process` : "");
    put("tile-oldest", counted ? span(counted.lag_max_s) : UNKNOWN);
    put("tile-dead", counted ? exact(counted.dead_letters) : UNKNOWN, counted && counted.dead_letters !== "0" ? "warn" : "");
    put("tile-dead-note", counted ? `in ${exact(counted.dead_letter_queues)} queues` : "");
    put("tile-parked", traffic ? exact(traffic.parked) : UNKNOWN);
    put("tile-timers", timers ? `${timers.capped ? "at least " : ""}${exact(timers.due)}` : UNKNOWN);
    put("tile-timers-note", timers ? timerNote(timers) : "");
    put("tile-spool", traffic ? exact(traffic.spool.pending) : UNKNOWN, traffic && traffic.spool.pending !== "0" ? "warn" : "");
    put("tile-spool-note", traffic ? spoolNote(traffic.spool) : "");
    put("totals-line", counted
      ? `${exact(counted.queues)} queues, ${exact(counted.partitions)} partitions, ${exact(counted.total)} messages kept`
      : "");
  }

  function timerNote(timers) {
    if (timers.late_s !== null) return `oldest ${span(timers.late_s)} late`;
    return timers.next_s === null ? "none within a day" : `next in ${span(timers.next_s)}`;
  }

  function spoolNote(spool) {
    const notes = [];
    if (spool.pending !== "0") notes.push(`${bytes(spool.bytes)}, oldest ${span(spool.oldest_s)}`);
    if (spool.set_aside !== "0") notes.push(`${exact(spool.set_aside)} set aside`);
    if (!spool.healthy) notes.push("cannot be drained");
    return notes.join(", ") || "empty";
  }

  // Tables

  function share(digits, most) {
    return most > 0 ? Number(digits || 0) / most : 0;
  }

  const number = (of) => ({ number: true, of });

  function queues(picture) {
    const rows = part(picture, "queues");
    if (!rows) return;
    const most = Math.max(0, ...rows.map((one) => Number(one.pending || 0)));
    Tables.fill(byId("queues"), rows, (one) => `${one.tenant} ${one.name}`, [
      { of: (one) => queueCell(one.name, one.tenant, one.paused) },
      number((one) => ({ text: exact(one.pending), share: share(one.pending, most) })),
      number((one) => (one.oldest_s === null ? "none" : span(one.oldest_s))),
      number((one) => exact(one.processing)),
      number((one) => minute(one.pushed)),
      number((one) => minute(one.popped)),
      number((one) => minute(one.acked)),
      number((one) => ({ text: exact(one.dead_letters), tone: one.dead_letters && one.dead_letters !== "0" ? "warn" : "" })),
    ], "There is no queue yet.");
  }

  /** Of a queue that nobody touched within the last minutes nothing was written. */
  const minute = (count) => (count === null ? "none" : exact(count));

  function groups(picture) {
    const rows = part(picture, "groups");
    if (!rows) return;
    const most = Math.max(0, ...rows.map((one) => Number(one.lag || 0)));
    Tables.fill(byId("groups"), rows, (one) => `${one.tenant} ${one.queue} ${one.group}`, [
      { of: (one) => (one.group === "__QUEUE_MODE__" ? "(queue mode)" : one.group) },
      { of: (one) => queueCell(one.queue, one.tenant) },
      number((one) => ({ text: exact(one.lag), share: share(one.lag, most) })),
      number((one) => exact(one.partitions_lagging)),
      number((one) => (one.lag === "0" ? "none" : span(one.oldest_s))),
    ], "No group has read anything yet.");
  }

  function parked(picture) {
    const traffic = part(picture, "traffic");
    if (!traffic) return;
    Tables.fill(byId("parked"), traffic.parked_queues, (one) => one[0], [
      { of: (one) => one[0] || "(any queue)" },
      number((one) => exact(one[1])),
    ], "No consumer waits at the moment.");
  }

  function brokers(picture) {
    const traffic = part(picture, "traffic");
    const minutes = part(picture, "minutes");
    const here = new Map((traffic ? traffic.processes : []).map((one) => [one.id, one]));
    const known = (minutes ? minutes.brokers : []).map((one) => ({ ...one, ...here.get(one.id), live: here.has(one.id) }));
    for (const [id, one] of here) {
      if (!known.some((other) => other.id === id)) known.push({ ...one, heard: null, live: true });
    }
    known.sort((one, other) => (one.id < other.id ? -1 : 1));
    const silent = (one) => !one.live && picture.at - one.heard > SILENT_S * 1000;
    Tables.fill(byId("brokers"), known, (one) => one.id, [
      { of: (one) => ({ text: one.id, note: one.live ? "answers you" : "" }) },
      { of: (one) => health(one, silent(one), picture.at) },
      number((one) => rate(one.pushed_per_s)),
      number((one) => rate(one.popped_per_s)),
      number((one) => percent(one.cpu_percent)),
      number((one) => bytes(one.rss_bytes)),
      number((one) => span(one.loop_lag_max_ms === undefined ? null : one.loop_lag_max_ms / 1000)),
      number((one) => (one.pool ? `${one.pool.size - one.pool.idle} of ${one.pool.size}` : `${one.pool_active} of ${one.pool_size}`)),
      number((one) => span(one.up_s)),
      number((one) => disk(one, silent(one))),
    ], "No broker has written its history yet.");
  }

  function health(one, silent, now) {
    if (one.live) {
      return one.database_up ? { text: "up", tone: "good" } : { text: "without database", tone: "bad" };
    }
    const ago = `heard ${span((now - one.heard) / 1000)} ago`;
    return silent ? { text: `silent, ${ago}`, tone: "bad" } : { text: ago, tone: "good" };
  }

  /** What waits on a broker's disk. Of one that is silent nobody knows what does by now. */
  function disk(one, silent) {
    const { pending, bytes: size, set_aside: aside } = one.spool;
    if (pending === null) return UNKNOWN;
    if (silent) return { text: UNKNOWN, note: `${exact(pending)} when last heard`, tone: "bad" };
    const notes = [];
    if (pending !== "0") notes.push(bytes(size));
    if (aside !== "0") notes.push(`${exact(aside)} set aside`);
    return { text: exact(pending), note: notes.join(", "), tone: notes.length ? "warn" : "" };
  }

  // PostgreSQL

  let walBefore = null;

  function walRate(told, health) {
    if (health.wal_bytes === null) return "none on a standby";
    const now = { at: told.at, bytes: BigInt(health.wal_bytes) };
    const before = walBefore && walBefore.at < now.at ? walBefore : null;
    if (!walBefore || walBefore.at !== now.at) walBefore = now;
    if (!before) return byId("pg-wal").textContent === UNKNOWN ? "measuring" : byId("pg-wal").textContent;
    const perSecond = Number(now.bytes - before.bytes) / ((now.at - before.at) / 1000);
    return `${bytes(Math.max(perSecond, 0))}/s`;
  }

  function postgres(picture) {
    const health = part(picture, "postgres");
    if (!health) {
      for (const place of document.querySelectorAll("#postgres dd")) place.textContent = UNKNOWN;
      walBefore = null;
      return;
    }
    const tx = health.oldest_tx_s;
    put("pg-version", `${health.version}${health.standby ? ", a standby" : ""}, up ${span(health.up_s)}`);
    put("pg-connections", `${health.connections} of ${health.connections_max}, ${health.active} active`,
      health.connections > 0.9 * health.connections_max ? "warn" : "");
    put("pg-waiting", `${health.waiting} waiting`, health.waiting > 0 ? "warn" : "");
    put("pg-oldest", tx === null ? "none open" : `${span(tx)} (${health.oldest_tx_application || "no name"}, ${health.oldest_tx_state}, pid ${health.oldest_tx_pid})`,
      tx !== null && tx > OLD_TX_S ? "warn" : "");
    put("pg-oldest-note", health.sees_all ? "" : "of this broker's own role: it may not look at others");
    put("pg-dead", `${exact(health.dead_rows)} dead, ${exact(health.live_rows)} live`);
    put("pg-worst", health.worst_table ? `most in ${health.worst_table}: ${exact(health.worst_dead_rows)}` : "");
    put("pg-wal", walRate(picture.parts.postgres, health));
    const looked = Number(health.blocks_hit) + Number(health.blocks_read);
    put("pg-cache", looked ? `${percent((100 * Number(health.blocks_hit)) / looked)} of blocks` : "nothing read yet");
    put("pg-size", bytes(health.database_bytes));
    put("pg-deadlocks", `${exact(health.deadlocks)} since the statistics began`, health.deadlocks !== "0" ? "warn" : "");
  }

  // What somebody should do something about

  function concerns(picture) {
    const told = [];
    const traffic = picture.parts.traffic && picture.parts.traffic.value;
    const health = picture.parts.postgres && picture.parts.postgres.value;
    const { switches } = picture;
    if (traffic && !traffic.database_up) told.push("The broker has no database: pushes go to the spool on disk.");
    if (traffic && traffic.missing.length) {
      told.push(`${traffic.missing.length} of ${traffic.workers} workers do not answer: what they do is missing here.`);
    }
    if (traffic && !traffic.spool.healthy && traffic.spool.pending !== "0") told.push("What is spooled cannot be drained at the moment.");
    if (traffic && traffic.spool.set_aside !== "0") told.push("The spool has set messages aside that PostgreSQL did not take.");
    if (switches.known) {
      if (switches.push_maintenance) told.push("Push maintenance is on: every push goes to the spool.");
      if (switches.pop_maintenance) told.push("Pop maintenance is on: nobody is given a message.");
      if (!switches.kv) told.push("Key/value state is switched off.");
      if (!switches.timers_schedule) told.push("Scheduling timers is switched off.");
      if (!switches.timers_fire) told.push("Firing timers is switched off.");
    }
    if (health && health.oldest_tx_s > OLD_TX_S) told.push("A transaction has been open for long: vacuum cannot remove what is dead.");
    const list = byId("concerns");
    const before = [...list.children].map((one) => one.textContent);
    if (before.join("\n") !== told.join("\n")) {
      list.replaceChildren(...told.map((text) => Object.assign(document.createElement("li"), { textContent: text })));
    }
    list.hidden = !told.length;
  }

  // Charts

  const throughput = new Chart(byId("chart-throughput"), {
    unit: "messages per second",
    lines: [
      { name: "pushed", color: "line-push", dash: "solid" },
      { name: "delivered", color: "line-pop", dash: "dashed" },
      { name: "acknowledged", color: "line-ack", dash: "dotted" },
    ],
    write: (value) => (value === null || value === undefined ? UNKNOWN : `${rate(value)}/s`),
  });
  const failures = new Chart(byId("chart-failures"), {
    unit: "messages per second",
    lines: [
      { name: "refused acks", color: "line-failed", dash: "solid" },
      { name: "dead letters", color: "line-dead", dash: "dashed" },
    ],
    write: (value) => (value === null || value === undefined ? UNKNOWN : `${rate(value)}/s`),
  });
  const waiting = new Chart(byId("chart-waiting"), {
    unit: "messages",
    lines: [{ name: "pending", color: "line-push", dash: "solid" }],
    write: (value) => (value === null || value === undefined ? UNKNOWN : exact(value)),
  });

  function charts(picture) {
    const hour = document.querySelector("input[name=span]:checked").value === "hour";
    const minutes = hour ? part(picture, "minutes") : null;
    const points = hour ? (minutes ? minutes.points : []) : picture.points;
    throughput.show(points.map((one) => [one[0], one[1], one[2], one[3]]));
    failures.show(points.map((one) => [one[0], one[4], one[5]]));
    waiting.show(picture.points.map((one) => [one[0], one[7]]));
    const failed = hour && !minutes && picture.parts.minutes;
    put("span-note", failed ? `The last hour is unknown: ${picture.parts.minutes.error || "not read yet"}` : "");
  }

  // The connection

  const MODES = {
    starting: ["Connecting", "wait"],
    socket: ["Live", "good"],
    polling: ["Polling", "warn"],
    none: ["No connection", "bad"],
  };
  const WAYS = {
    socket: "over a websocket",
    polling: "every 5 s, for want of a websocket",
    none: "the last picture stays",
  };

  function showMode(mode, reason) {
    const [name, tone] = MODES[mode];
    put("mode", `${name}: ${WAYS[mode]}${reason ? ` (${reason})` : ""}`, tone);
    page.dataset.mode = mode;
  }

  function showAge() {
    const age = live.age();
    const every = live.picture ? live.picture.every_ms / 1000 : 0;
    const old = age !== null && age > Math.max(3 * every, 12);
    put("age", age === null ? "no picture yet" : `picture ${span(Math.max(1, Math.round(age)))} old`, old ? "bad" : "");
    page.classList.toggle("old", old);
  }

  function show(picture) {
    page.dataset.picture = String(picture.no);
    put("who", picture.broker);
    put("every", `a new one every ${span(picture.every_ms / 1000)}`);
    for (const step of [tiles, queues, groups, parked, brokers, postgres, concerns, charts]) step(picture);
    showAge();
  }

  const scheme = location.protocol === "https:" ? "wss:" : "ws:";
  const live = new Live({
    socket: `${scheme}//${location.host}${page.dataset.socket}`,
    snapshot: page.dataset.snapshot,
    tell(news) {
      if (news.picture) show(news.picture);
      else showMode(news.mode, news.reason);
    },
  });
  for (const choice of document.querySelectorAll("input[name=span]")) {
    choice.addEventListener("change", () => {
      if (live.picture) charts(live.picture);
    });
  }
  setInterval(showAge, 1000);
  live.start();
})();
