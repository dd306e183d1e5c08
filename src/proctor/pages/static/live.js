// A page that goes on, a run or the feed of traces: events say that something happened, and the page itself, asked for again, says what.
// Nothing is told twice or left out, whatever was missed; the browser resumes the stream by the id of the last event.
const { parse, gone, number } = window.proctor;
const live = document.getElementById("live"), said = live.dataset;
const line = document.getElementById("live-status"), button = document.getElementById("pause");
const LEAST_MS = 1000, RETRY_MS = 3000;
const KINDS = ["queued", "running", "started", "finished", "retrying", "slowed", "waiting", "cancelling", "received", "decided"];
const LAST = ["completed", "cancelled", "failed"];
// What counts while the page is paused. A trace that was there before may be decided now, which is no new one.
const NEW = ["received", "finished", ...LAST];
const waiting = new Set();
let stream, timer, asking = false, again = false, over = false, paused = false, since = "", why = "", focused;

function tell() {
  const text = over ? "" : since ? `${said.lost.replace("{at}", since)} ${why}`.trim()
    : !paused ? said.following
    : waiting.size ? said.waiting.replace("{count}", number(waiting.size)) : said.paused;
  live.classList.toggle("lost", since && !over);
  if (line.textContent !== text) line.textContent = text;
}
function lost(reason = "") {
  why = reason;
  since ||= new Date().toLocaleTimeString(document.documentElement.lang);
  tell();
}
function end() { over = live.hidden = true; stream?.close(); clearTimeout(timer); }

// What somebody types into a part of the page stays, and so does the place where they type.
function keepTyped(part, next) {
  for (const old of part.querySelectorAll("[name]:not([type=hidden])")) {
    const fresh = next.querySelector(`[name="${old.name}"]`);
    if (!fresh) continue;
    fresh.value = old.value;
    if (old === document.activeElement) focused = [fresh, old.selectionStart, old.selectionEnd];
  }
}

function swap(fresh) {
  const changed = [...document.querySelectorAll("[data-part]")].map((part) => [part, fresh.getElementById(part.id)]).filter(([part, next]) => next && next.dataset.rev !== part.dataset.rev);
  // Without a stream nobody counts, but that something waits is seen.
  if (paused) { if (changed.length && !waiting.size) waiting.add(""); return; }
  waiting.clear();
  const place = document.activeElement, row = place?.closest("[data-row][id]")?.id;
  focused = undefined;
  for (const [part, next] of changed) {
    const opened = [...part.querySelectorAll("details[open][id]")].map((details) => details.id);
    keepTyped(part, next);
    part.replaceWith(document.adoptNode(next));
    for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
  }
  const target = focused?.[0] ?? (place?.isConnected ? null : document.getElementById(place.id) ?? document.getElementById(row)?.querySelector("a"));
  target?.focus({ preventScroll: true });
  if (focused?.[1] >= 0) target.setSelectionRange(focused[1], focused[2]);
  document.dispatchEvent(new Event("swapped"));
  if (!fresh.getElementById("live")) end();
}

async function refresh(always) {
  timer = undefined;
  if (over || paused && !always) return;
  if (asking) { again = true; return; }
  asking = true;
  try {
    const answer = await fetch(location.href, { cache: "no-store" });
    if (gone(answer)) { end(); return; }
    const fresh = parse(await answer.text());
    if (answer.ok) {
      swap(fresh);
      // A stream knows itself whether it is lost; one that was refused is no loss while the page answers.
      if (stream?.readyState !== EventSource.CONNECTING) since = "";
    } else {
      lost(fresh.querySelector("h1")?.textContent.trim());
      if (stream) setTimeout(soon, RETRY_MS);
    }
  } catch {
    lost();
  } finally {
    asking = false;
    if (again) { again = false; soon(); }
    tell();
  }
}
const soon = () => { timer ??= setTimeout(refresh, LEAST_MS); };

function heard(event) {
  if (LAST.includes(event.type)) stream.close();
  if (!paused) soon();
  else if (NEW.includes(event.type)) { waiting.add(JSON.parse(event.data).trace_id ?? event.lastEventId); tell(); }
}

function follow() {
  stream = new EventSource(said.events);
  stream.addEventListener("open", () => { if (since) soon(); since = ""; tell(); });
  for (const kind of [...KINDS, ...LAST]) stream.addEventListener(kind, heard);
  stream.addEventListener("error", () => {
    if (over) return;
    // Closed for good: the run has ended (204), the session has, or there are too many streams. Asked even while paused.
    if (stream.readyState === EventSource.CLOSED) refresh(true).then(() => { if (!over) setTimeout(follow, RETRY_MS); });
    else lost();
  });
}

button.hidden = false;
button.addEventListener("click", () => {
  paused = !paused;
  button.setAttribute("aria-pressed", String(paused));
  if (!paused) soon();
  tell();
});
if (said.events) follow();
else (function poll() { if (!over) setTimeout(() => refresh().then(poll), Number(said.poll)); })();
tell();
