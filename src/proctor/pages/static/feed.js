// Traces as they come in: events say that something happened, and the page itself, asked for again, says what; paused, how many wait.
const live = document.getElementById("live");
const line = document.getElementById("live-status");
const button = document.getElementById("pause");
const policy = window.trustedTypes ? trustedTypes.createPolicy("proctor", { createHTML: (text) => text }) : { createHTML: (text) => text };
const LEAST_MS = 1000;
const waiting = new Set();
let stream, timer, asking = false, paused = false, over = false, since = "";

function tell() {
  const text = since ? live.dataset.lost.replace("{at}", since)
    : !paused ? live.dataset.following
    : waiting.size ? live.dataset.waiting.replace("{count}", waiting.size.toLocaleString(document.documentElement.lang))
    : live.dataset.paused;
  live.classList.toggle("lost", Boolean(since));
  if (line.textContent !== text) line.textContent = text;
}

function swap(text) {
  // Our own page, escaped where it was made.
  const fresh = new DOMParser().parseFromString(policy.createHTML(text), "text/html");
  const focused = document.activeElement?.closest("[data-row]")?.id;
  for (const part of document.querySelectorAll("[data-part]")) {
    const next = fresh.getElementById(part.id);
    if (next && next.dataset.rev !== part.dataset.rev) part.replaceWith(document.adoptNode(next));
  }
  if (focused && !document.activeElement?.closest("[data-row]")) document.getElementById(focused)?.querySelector("a")?.focus({ preventScroll: true });
  document.dispatchEvent(new Event("swapped"));
}

async function refresh(always = false) {
  timer = undefined;
  if ((paused && !always) || over) return;
  if (asking) { soon(); return; }
  asking = true;
  if (!paused) waiting.clear();
  try {
    const answer = await fetch(location.href, { cache: "no-store" });
    // The session is over, or the project is gone.
    if (answer.redirected || answer.status === 404 || answer.status === 403) { over = true; stream.close(); location.reload(); return; }
    const text = await answer.text();
    if (answer.ok && !paused) swap(text);
  } catch { /* the stream notices, and says so */ } finally { asking = false; tell(); }
}
const soon = () => { timer ??= setTimeout(() => refresh(), LEAST_MS); };

function heard(event) {
  // One seen before may be decided now.
  if (!paused) soon();
  else if (event.type === "received") { waiting.add(JSON.parse(event.data).trace_id); tell(); }
}

function follow(address) {
  stream = new EventSource(address);
  stream.addEventListener("open", () => { if (since) { since = ""; soon(); } tell(); });
  for (const kind of ["received", "decided"]) stream.addEventListener(kind, heard);
  stream.addEventListener("error", () => {
    if (over) return;
    since ||= new Date().toLocaleTimeString(document.documentElement.lang);
    tell();
    // Refused: no session, or too many streams. Asked even while paused.
    if (stream.readyState === EventSource.CLOSED) setTimeout(() => refresh(true).then(() => { if (!over) follow(address); }), 3000);
  });
}

button.hidden = false;
button.addEventListener("click", () => {
  paused = !paused;
  button.setAttribute("aria-pressed", String(paused));
  if (!paused) soon();
  tell();
});
follow(live.dataset.events);
tell();
