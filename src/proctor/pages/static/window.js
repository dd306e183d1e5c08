// A window over a long list: only the rows near what is seen are there; the others are asked for when somebody scrolls to them.
// One policy for all scripts of a page: the browser lets its name be taken once.
const policy = (window.proctorPolicy ??= window.trustedTypes ? trustedTypes.createPolicy("proctor", { createHTML: (text) => text }) : { createHTML: (text) => text });
const CHUNK = 50, KEPT = 12, WAIT_MS = 60;

function open(frame) {
  if (frame.dataset.ready) return;
  frame.dataset.ready = "1";
  const total = Number(frame.dataset.window), table = frame.querySelector("table"), body = table.tBodies[0];
  const line = document.querySelector("[data-shown]"), words = line?.dataset.words;
  const above = document.createElement("tbody"), below = document.createElement("tbody"), chunks = new Map();
  for (const space of [above, below]) { space.className = "space"; space.setAttribute("aria-hidden", "true"); space.append(document.createElement("tr")); }
  body.before(above); body.after(below);
  frame.classList.add("fixed"); frame.tabIndex = 0; frame.setAttribute("role", "region");
  frame.setAttribute("aria-labelledby", "all");
  const height = () => body.rows[0]?.getBoundingClientRect().height || 44;
  let tall = height(), from = Number(frame.dataset.from), timer, asked = 0;
  const place = (space, px) => { space.hidden = px < 1; space.rows[0].style.height = `${px}px`; };
  chunks.set(Math.floor(from / CHUNK), [...body.rows]);

  async function load(number) {
    if (chunks.has(number)) return chunks.get(number);
    const answer = await fetch(`${frame.dataset.rows}&position=${number * CHUNK}`, { cache: "no-store" });
    if (!answer.ok || answer.redirected) { location.reload(); return []; }
    const text = `<table><tbody>${await answer.text()}</tbody></table>`;
    const rows = [...new DOMParser().parseFromString(policy.createHTML(text), "text/html").querySelectorAll("tr")];
    chunks.set(number, rows.map((row) => document.adoptNode(row)));
    if (chunks.size > KEPT) chunks.delete([...chunks.keys()].sort((a, b) => Math.abs(b - number) - Math.abs(a - number))[0]);
    return chunks.get(number);
  }

  async function draw() {
    const turn = ++asked, seen = Math.max(1, Math.ceil(frame.clientHeight / tall));
    const first = Math.min(total - 1, Math.max(0, Math.floor((frame.scrollTop - table.tHead.offsetHeight) / tall)));
    const low = Math.floor(Math.max(0, first - 10) / CHUNK), high = Math.floor(Math.min(total - 1, first + seen + 10) / CHUNK);
    try {
      const rows = [];
      for (let number = low; number <= high; number++) rows.push(...await load(number));
      if (turn !== asked || body.contains(document.activeElement) && rows.every((row) => !row.contains(document.activeElement))) return;
      place(above, low * CHUNK * tall); place(below, Math.max(0, total - low * CHUNK - rows.length) * tall);
      body.replaceChildren(...rows);
      document.dispatchEvent(new Event("swapped"));
    } catch { timer = setTimeout(draw, 2000); }
    if (words) line.textContent = words.replace("{first}", (first + 1).toLocaleString(document.documentElement.lang)).replace("{last}", Math.min(total, first + seen).toLocaleString(document.documentElement.lang)).replace("{total}", total.toLocaleString(document.documentElement.lang));
  }
  const jump = (row) => { frame.scrollTop = row * tall; draw(); };
  frame.addEventListener("scroll", () => { clearTimeout(timer); timer = setTimeout(draw, WAIT_MS); }, { passive: true });
  addEventListener("resize", () => { const first = frame.scrollTop / tall; tall = height(); frame.scrollTop = first * tall; draw(); });
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("[data-jump]");
    if (link && frame.isConnected) { event.preventDefault(); jump(Number(link.dataset.jump)); frame.focus({ preventScroll: true }); }
  });
  document.querySelector(".jump-form")?.addEventListener("submit", (event) => {
    event.preventDefault();
    jump(Math.max(0, Math.min(total, parseInt(event.target.elements.row.value.replace(/\D/g, "") || "1", 10)) - 1));
  });
  for (const link of document.querySelectorAll("[data-jump]")) link.hidden = false;
  place(above, from * tall); place(below, Math.max(0, total - from - body.rows.length) * tall);
  if (from) frame.scrollTop = from * tall;
}
const look = () => { for (const frame of document.querySelectorAll("[data-window]")) open(frame); };
look();
document.addEventListener("swapped", look);
