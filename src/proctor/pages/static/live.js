// A live page (a run or the trace feed): events announce a change, then the page is fetched again.
// The browser resumes the stream by the id of the last event, so that no event is lost or repeated.
const { parse, gone, number } = window.proctor;
const live = document.getElementById("live"), texts = live.dataset;
const line = document.getElementById("live-status"), button = document.getElementById("pause");
const LEAST_MS = 1000, RETRY_MS = 3000;
const KINDS = ["queued", "running", "started", "finished", "retrying", "slowed", "waiting", "cancelling", "received", "decided"];
const LAST = ["completed", "cancelled", "failed"];
// What counts while the page is paused. A trace that was there before may be decided now, which is no new one.
const NEW = ["received", "finished", ...LAST];
const waiting = new Set();
let stream, timer, fetching = false, again = false, over = false, paused = false, since = "", why = "", focused;

function showStatus() {
  const text = over ? "" : since ? `${texts.lost.replace("{at}", since)} ${why}`.trim()
    : !paused ? texts.following
    : waiting.size ? texts.waiting.replace("{count}", number(waiting.size)) : texts.paused;
  live.classList.toggle("lost", since && !over);
  if (line.textContent !== text) line.textContent = text;
}
function lost(reason = "") {
  why = reason;
  since ||= new Date().toLocaleTimeString(document.documentElement.lang);
  showStatus();
}
function end() { over = live.hidden = true; stream?.close(); clearTimeout(timer); }

// Text typed into a part of the page is preserved, and so is the focus.
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
  // Without a stream there is no count, only that something changed.
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
  if (fetching) { again = true; return; }
  fetching = true;
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
    fetching = false;
    if (again) { again = false; soon(); }
    showStatus();
  }
}
const soon = () => { timer ??= setTimeout(refresh, LEAST_MS); };

function heard(event) {
  if (LAST.includes(event.type)) stream.close();
  if (!paused) soon();
  else if (NEW.includes(event.type)) { waiting.add(JSON.parse(event.data).trace_id ?? event.lastEventId); showStatus(); }
}

function follow() {
  stream = new EventSource(texts.events);
  stream.addEventListener("open", () => { if (since) soon(); since = ""; showStatus(); });
  for (const kind of [...KINDS, ...LAST]) stream.addEventListener(kind, heard);
  stream.addEventListener("error", () => {
    if (over) return;
    // Closed for good: the run ended (204), the session ended, or there are too many streams. Checked even while paused.
    if (stream.readyState === EventSource.CLOSED) refresh(true).then(() => { if (!over) setTimeout(follow, RETRY_MS); });
    else lost();
  });
}

button.hidden = false;
button.addEventListener("click", () => {
  paused = !paused;
  button.firstChild.data = paused ? "Resume " : "Pause ";
  if (!paused) soon();
  showStatus();
});
if (texts.events) follow();
else (function poll() { if (!over) setTimeout(() => refresh().then(poll), Number(texts.poll)); })();
showStatus();
