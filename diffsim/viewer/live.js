
// ---- the live view: fetches frames from the server into the player's buffer, and sends the user's commands ----
async function live() {
  const get = (id) => document.getElementById(id), { scene, canvas, raysAt } = window.diffsim;
  const numbers = new Uint8Array(scene.buffer);
  let telling = Promise.resolve();
  const tell = (command, value = null) => {
    const send = () => fetch("/tell", { method: "POST", headers: { "X-Diffsim": "1" }, body: JSON.stringify([command, value]) });
    return (telling = telling.then(send, send));
  };

  let running = true, held = null;
  get("run").onclick = () => tell("run", !running);
  get("step").onclick = () => tell("run", false).then(() => tell("step", 1));
  get("reset").onclick = () => tell("reset");
  get("rate").onchange = () => tell("speed", Number(get("rate").value));
  get("key").add(new Option("keyframe", ""));
  scene.live.keys.forEach((name, index) => get("key").add(new Option(name, index)));
  get("key").hidden = !scene.live.keys.length;
  get("key").onchange = () => { if (get("key").value !== "") tell("key", Number(get("key").value)); get("key").value = ""; };
  for (const name of ["forces", "frames"]) get(name).onchange = () => tell(name, get(name).checked);
  addEventListener("keydown", (e) => { if (e.key === " " && e.target === document.body) tell("run", !running); });

  const sliders = scene.live.ctrl.map(([name, low, high], index) => {
    const label = document.createElement("label"), text = document.createElement("span"), shown = document.createElement("output"), input = document.createElement("input");
    label.className = "slide"; text.textContent = name;
    Object.assign(input, { type: "range", min: low, max: high, step: "any" });
    input.oninput = () => { shown.value = Number(input.value).toFixed(2); tell("ctrl", [index, Number(input.value)]); };
    input.onpointerdown = () => { held = index; };
    input.onpointerup = () => { held = null; };
    label.append(text, shown, input); get("sliders").append(label);
    return { input, shown };
  });

  // Ctrl (or Cmd) and the mouse pull a body; without it the mouse turns the camera
  let pulling = false, latest = null;
  const at = (e) => { const r = canvas.getBoundingClientRect(); return raysAt(e.clientX - r.left, e.clientY - r.top); };
  const mine = (e) => { e.stopImmediatePropagation(); e.preventDefault(); };
  canvas.addEventListener("pointerdown", (e) => { if (e.ctrlKey || e.metaKey) { mine(e); pulling = true; canvas.setPointerCapture(e.pointerId); tell("grab", at(e)); } }, true);
  canvas.addEventListener("pointermove", (e) => {
    if (!pulling) return;
    mine(e);
    // while a request waits, remember only the latest position of the mouse
    const waiting = latest !== null;
    latest = at(e);
    if (!waiting) telling = telling.then(() => { const rays = latest; latest = null; return fetch("/tell", { method: "POST", headers: { "X-Diffsim": "1" }, body: JSON.stringify(["drag", rays]) }); });
  }, true);
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (e) => { if (pulling) { mine(e); pulling = false; tell("release"); } }, true);

  async function refresh() {
    const answer = await fetch("/frame"), news = JSON.parse(answer.headers.get("X-News"));
    numbers.set(new Uint8Array(await answer.arrayBuffer()), 0);
    running = news.running;
    get("run").textContent = running ? "pause" : "run";
    get("news").textContent = `${news.time.toFixed(2)} s` + (running ? `, ${news.rate.toFixed(2)} x` : "");
    get("bad").textContent = news.status;
    for (const name of ["forces", "frames"]) get(name).checked = news[name];
    news.ctrl.forEach((value, index) => { if (held !== index) { sliders[index].input.value = value; sliders[index].shown.value = value.toFixed(2); } });
    document.body.dataset.frames = Number(document.body.dataset.frames ?? 0) + 1;
  }
  for (;;) {
    const begin = performance.now();
    try { await refresh(); get("error").hidden = true; } catch (error) { get("error").hidden = false; get("error").textContent = "no connection"; await new Promise((done) => setTimeout(done, 1000)); }
    await new Promise((done) => setTimeout(done, Math.max(0, 16 - (performance.now() - begin))));
  }
}
ready.then(live);
