// A run as it goes on: its events say that something happened, and the page itself, asked for again, says what.
// Nothing is told twice or left out, whatever was missed; the browser resumes the stream by the id of the last event.
const live = document.querySelector("[data-live]");
const line = document.getElementById("live-status");
// One policy for all scripts of a page: the browser lets its name be taken once.
const policy = (window.proctorPolicy ??= window.trustedTypes ? trustedTypes.createPolicy("proctor", { createHTML: (text) => text }) : { createHTML: (text) => text });
const LEAST_MS = 1000, RETRY_MS = 3000;
const KINDS = ["queued", "running", "started", "finished", "retrying", "slowed", "waiting", "cancelling"];
const LAST = ["completed", "cancelled", "failed"];
let stream, timer, asking = false, again = false, over = false, focused;

// What somebody types into a part of the page stays, and so does the place where they type.
function keepTyped(part, next) {
  for (const old of part.querySelectorAll("[name]:not([type=hidden])")) {
    const fresh = next.querySelector(`[name="${old.name}"]`);
    if (!fresh) continue;
    fresh.value = old.value;
    if (old === document.activeElement) focused = [fresh, old.selectionStart, old.selectionEnd];
  }
}

function swap(text) {
  // Our own page, escaped where it was made.
  const fresh = new DOMParser().parseFromString(policy.createHTML(text), "text/html");
  const place = document.activeElement, row = place?.closest("[data-row][id]")?.id;
  focused = undefined;
  for (const part of document.querySelectorAll("[data-part]")) {
    const next = fresh.getElementById(part.id);
    if (!next || next.dataset.rev === part.dataset.rev) continue;
    const opened = [...part.querySelectorAll("details[open][id]")].map((details) => details.id);
    keepTyped(part, next);
    part.replaceWith(document.adoptNode(next));
    for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
  }
  const target = focused?.[0] ?? (place?.isConnected ? null : document.getElementById(place.id) ?? document.getElementById(row)?.querySelector("a"));
  target?.focus({ preventScroll: true });
  if (focused?.[1] >= 0) target.setSelectionRange(focused[1], focused[2]);
  document.dispatchEvent(new Event("swapped"));
  if (!fresh.querySelector("[data-live]")) end();
}

async function refresh() {
  timer = undefined;
  if (asking) { again = true; return; }
  asking = true;
  try {
    const answer = await fetch(location.href, { cache: "no-store" });
    // The session is over, or the run is gone.
    if (answer.redirected || answer.status === 404 || answer.status === 403) { over = true; stream?.close(); location.reload(); return; }
    if (!answer.ok) { lost(); if (stream) setTimeout(soon, RETRY_MS); return; }
    swap(await answer.text());
    // A stream knows itself whether it is lost.
    if (!over && (!stream || stream.readyState === EventSource.OPEN)) { delete line.dataset.since; say(""); }
  } catch {
    lost();
  } finally {
    asking = false;
    if (again) { again = false; soon(); }
  }
}
const soon = () => { timer ??= setTimeout(refresh, LEAST_MS); };

function say(text) { if (line.textContent !== text) line.textContent = text; }
function lost() {
  if (line.dataset.since) return;
  line.dataset.since = new Date().toISOString();
  say(live.dataset.lost.replace("{at}", new Date().toLocaleTimeString(document.documentElement.lang)));
}
function end() { over = true; stream?.close(); clearTimeout(timer); delete line.dataset.since; say(""); }

function follow() {
  stream = new EventSource(live.dataset.events);
  stream.addEventListener("open", () => { if (line.dataset.since) { delete line.dataset.since; soon(); } });
  for (const kind of KINDS) stream.addEventListener(kind, soon);
  for (const kind of LAST) stream.addEventListener(kind, () => { stream.close(); clearTimeout(timer); timer = undefined; refresh(); });
  stream.addEventListener("error", () => {
    if (over) return;
    // Closed for good: the run has ended (204), or the session has.
    if (stream.readyState === EventSource.CLOSED) refresh().then(() => { if (!over) { lost(); setTimeout(follow, RETRY_MS); } });
    else lost();
  });
}
if (live.dataset.events) follow();
else (function poll() { if (!over) setTimeout(() => refresh().then(poll), Number(live.dataset.poll)); })();
