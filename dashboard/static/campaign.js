// Keeps a campaign's page current: an event of its stream makes the page fetch its curves and its tables again.

const REFRESH_MS = 1000;
const root = document.getElementById("campaign");
const plot = document.getElementById("plot");
const connection = document.getElementById("connection");
const api = `/api/v1/campaigns/${root.dataset.campaign}`;
const dark = matchMedia("(prefers-color-scheme: dark)");
const narrow = matchMedia("(max-width: 40rem)");

let lastSeq = Number(root.dataset.seq);
let source = null;
let waiting = null;
let refreshing = false;
let figure = null;

/** The figure's colours are the page's, so that both follow the reader's theme. */
function themed(layout) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const axis = { gridcolor: colour("--line"), linecolor: colour("--line"), zerolinecolor: colour("--line") };
  return {
    ...layout,
    // On a narrow page the legend would take the plot's place; the table shows the same colours.
    showlegend: layout.showlegend && !narrow.matches,
    font: { family: "system-ui, sans-serif", size: 13, color: colour("--ink") },
    hoverlabel: { bgcolor: colour("--panel"), bordercolor: colour("--line"), font: { color: colour("--ink") } },
    xaxis: { ...layout.xaxis, ...axis },
    yaxis: { ...layout.yaxis, ...axis },
  };
}

function draw() {
  if (figure) {
    Plotly.react(plot, figure.data, themed(figure.layout), { responsive: true, displayModeBar: false });
  }
}

async function fetched(url) {
  const response = await fetch(url, { headers: { Accept: "application/json, text/html" } });
  if (!response.ok) throw new Error(`${url}: HTTP ${response.status}`);
  return response;
}

async function refreshCurves() {
  figure = await (await fetched(`${api}/curves`)).json();
  draw();
}

/** Replaces each part of the page that changed, and gives the keyboard focus back if it was inside. */
async function refreshParts() {
  const text = await (await fetched(`/campaigns/${root.dataset.campaign}/live`)).text();
  const fresh = new DOMParser().parseFromString(text, "text/html");
  for (const part of fresh.querySelectorAll("[data-live]")) {
    const old = document.getElementById(part.id);
    if (old.outerHTML === part.outerHTML) continue;
    const focused = old.contains(document.activeElement) ? document.activeElement.id : "";
    const scrolled = old.querySelector(".scroll")?.scrollLeft ?? 0;
    old.replaceWith(part);
    if (focused) document.getElementById(focused)?.focus();
    if (scrolled) part.querySelector(".scroll").scrollLeft = scrolled;
  }
}

/** At most one refresh a second and one at a time, however fast events come; the last event is never left out. */
function refreshSoon() {
  if (waiting !== null) return;
  waiting = setTimeout(async () => {
    if (refreshing) {
      waiting = null;
      refreshSoon();
      return;
    }
    refreshing = true;
    waiting = null;
    try {
      await Promise.all([refreshCurves(), refreshParts()]);
      if (source?.readyState === EventSource.OPEN) connection.textContent = "Live";
    } catch (error) {
      connection.textContent = `Not current: ${error.message}`;
    } finally {
      refreshing = false;
    }
  }, REFRESH_MS);
}

function connect() {
  source = new EventSource(`${api}/events?after=${lastSeq}`);
  source.onopen = () => {
    connection.textContent = "Live";
  };
  source.onmessage = (message) => {
    lastSeq = Number(message.lastEventId);
    refreshSoon();
  };
  source.onerror = () => {
    const over = source.readyState === EventSource.CLOSED;
    connection.textContent = over ? "Not live: load the page again" : "Connection lost, trying again…";
  };
}

/** A hidden page gives its connection back: browsers allow six per host. */
function follow() {
  source?.close();
  source = null;
  if (!document.hidden) connect();
}

dark.addEventListener("change", draw);
narrow.addEventListener("change", draw);
document.addEventListener("visibilitychange", follow);
addEventListener("pagehide", () => source?.close());
addEventListener("pageshow", (event) => event.persisted && follow());
follow();
refreshCurves().catch((error) => {
  connection.textContent = `No curves: ${error.message}`;
});
