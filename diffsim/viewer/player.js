// the player of diffsim.viewer.to_html: shows a trajectory of one or several worlds with WebGL 2; loads no other file.
// vectors are arrays of 3, quaternions (w, x, y, z), matrices 4 x 4 by columns; z is up; metres and seconds.
"use strict";

// ---- small algebra ----
const add = (a, b) => [a[0] + b[0], a[1] + b[1], a[2] + b[2]];
const sub = (a, b) => [a[0] - b[0], a[1] - b[1], a[2] - b[2]];
const mul = (a, s) => [a[0] * s, a[1] * s, a[2] * s];
const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
const unit = (a) => mul(a, 1 / Math.max(Math.hypot(a[0], a[1], a[2]), 1e-12));
const turn = (q, v) => {
  const t = mul(cross([q[1], q[2], q[3]], v), 2);
  return add(add(v, mul(t, q[0])), cross([q[1], q[2], q[3]], t));
};
const compose = (a, b) => [
  a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3], a[0] * b[1] + a[1] * b[0] + a[2] * b[3] - a[3] * b[2],
  a[0] * b[2] - a[1] * b[3] + a[2] * b[0] + a[3] * b[1], a[0] * b[3] + a[1] * b[2] - a[2] * b[1] + a[3] * b[0]];
const rigid = (p, q) => {
  const x = turn(q, [1, 0, 0]), y = turn(q, [0, 1, 0]), z = turn(q, [0, 0, 1]);
  return [...x, 0, ...y, 0, ...z, 0, ...p, 1];
};
const times = (a, b) => {
  const c = new Array(16).fill(0);
  for (let j = 0; j < 4; j++) for (let i = 0; i < 4; i++) for (let k = 0; k < 4; k++) c[4 * j + i] += a[4 * k + i] * b[4 * j + k];
  return c;
};
const look = (eye, right, up, back) => [
  right[0], up[0], back[0], 0, right[1], up[1], back[1], 0, right[2], up[2], back[2], 0,
  -dot(right, eye), -dot(up, eye), -dot(back, eye), 1];
const perspective = (fovy, aspect, near, far) => {
  const f = 1 / Math.tan(fovy / 2);
  return [f / aspect, 0, 0, 0, 0, f, 0, 0, 0, 0, (far + near) / (near - far), -1, 0, 0, 2 * far * near / (near - far), 0];
};
const box = (r, depth) => [1 / r, 0, 0, 0, 0, 1 / r, 0, 0, 0, 0, -1 / depth, 0, 0, 0, 0, 1];

// ---- shapes: triangles with normals, 6 numbers for each corner ----
function revolved(profile, around) {
  // profile: [radius, height, normal outward, normal upward] from the bottom up
  const out = [];
  for (let i = 0; i < profile.length - 1; i++) for (let j = 0; j < around; j++) {
    const corner = (k, a) => {
      const [r, h, n, m] = profile[k], c = Math.cos(a), s = Math.sin(a);
      return [r * c, r * s, h, n * c, n * s, m];
    };
    const a = 2 * Math.PI * j / around, b = 2 * Math.PI * (j + 1) / around;
    const [p, q, t, u] = [corner(i, a), corner(i, b), corner(i + 1, b), corner(i + 1, a)];
    out.push(...p, ...q, ...t, ...p, ...t, ...u);
  }
  return new Float32Array(out);
}
const dome = (radius, middle, from, to, steps) => Array.from({ length: steps + 1 }, (_, i) => {
  const a = from + (to - from) * i / steps;
  return [radius * Math.cos(a), middle + radius * Math.sin(a), Math.cos(a), Math.sin(a)];
});
const sphere = () => revolved(dome(1, 0, -Math.PI / 2, Math.PI / 2, 20), 32);
const capsule = (r, h) => revolved([...dome(r, -h, -Math.PI / 2, 0, 9), ...dome(r, h, 0, Math.PI / 2, 9)], 28);
const cylinder = () => revolved([[0, -1, 0, -1], [1, -1, 0, -1], [1, -1, 1, 0], [1, 1, 1, 0], [1, 1, 0, 1], [0, 1, 0, 1]], 36);
function cube() {
  const out = [];
  for (let k = 0; k < 3; k++) for (const s of [-1, 1]) {
    const n = [0, 0, 0], u = [0, 0, 0], v = [0, 0, 0];
    n[k] = s; u[(k + 1) % 3] = s; v[(k + 2) % 3] = 1;
    for (const [a, b] of [[-1, -1], [1, -1], [1, 1], [-1, -1], [1, 1], [-1, 1]]) out.push(...add(n, add(mul(u, a), mul(v, b))), ...n);
  }
  return new Float32Array(out);
}
const square = () => new Float32Array([[-1, -1], [1, -1], [1, 1], [-1, -1], [1, 1], [-1, 1]].flatMap(([x, y]) => [x, y, 0, 0, 0, 1]));
function facets(vertex, face) {
  // smooth normals: average over the faces around a vertex, but only those nearly parallel to this one, to keep edges sharp
  const count = face.length / 3, normal = new Float32Array(3 * count), at = (k) => [vertex[3 * k], vertex[3 * k + 1], vertex[3 * k + 2]];
  const around = Array.from({ length: vertex.length / 3 }, () => []), out = new Float32Array(18 * count);
  for (let f = 0; f < count; f++) {
    const [a, b, c] = [0, 1, 2].map((i) => at(face[3 * f + i]));
    normal.set(cross(sub(b, a), sub(c, a)), 3 * f);
    for (let i = 0; i < 3; i++) around[face[3 * f + i]].push(f);
  }
  const area = (f) => [normal[3 * f], normal[3 * f + 1], normal[3 * f + 2]];
  for (let f = 0; f < count; f++) {
    const own = unit(area(f));
    for (let i = 0; i < 3; i++) {
      let sum = [0, 0, 0];
      for (const g of around[face[3 * f + i]]) if (dot(unit(area(g)), own) > 0.7) sum = add(sum, area(g));
      out.set([...at(face[3 * f + i]), ...unit(dot(sum, sum) > 0 ? sum : own)], 18 * f + 6 * i);
    }
  }
  return out;
}

// ---- shaders; the same light as in diffsim.viz ----
const SKY = `vec3 sky(vec3 d) { return mix(vec3(.58,.70,.85), vec3(.12,.30,.65), pow(clamp(d.z, 0., 1.), .6)); }
vec3 film(vec3 c) { c = max(c, 0.); return pow(clamp(c * (1. + c / 9.) / (1. + .55 * c), 0., 1.), vec3(1. / 2.2)); }`;
const VERTEX = `#version 300 es
layout(location=0) in vec3 corner; layout(location=1) in vec3 normal;
uniform mat4 place, camera, light; uniform vec3 size;
out vec3 world, facing, own; out vec4 shade;
void main() {
  own = corner * size; vec4 w = place * vec4(own, 1.);
  world = w.xyz; facing = mat3(place) * (normal / size); shade = light * w; gl_Position = camera * w;
}`;
const FRAGMENT = `#version 300 es
precision highp float; precision highp sampler2DShadow;
in vec3 world, facing, own; in vec4 shade;
uniform vec3 eye, sun; uniform vec4 rgba; uniform float floor_, tile, fade, tinted, shadowed; uniform sampler2DShadow depth;
out vec4 colour;
${SKY}
float lit() {
  vec3 q = shade.xyz * .5 + .5;
  if (shadowed < .5 || any(lessThan(q, vec3(0.))) || any(greaterThan(q, vec3(1.)))) return 1.;
  float sum = 0.;
  for (int i = -1; i <= 1; i++) for (int j = -1; j <= 1; j++) sum += texture(depth, q + vec3(float(i), float(j), 0.) / vec3(2048., 2048., 1.) - vec3(0., 0., .0008));
  return sum / 9.;
}
void main() {
  vec3 n = normalize(facing), v = normalize(eye - world);
  if (dot(n, v) < 0.) n = -n;
  vec3 base = pow(rgba.rgb, vec3(2.2));
  if (floor_ > .5) {
    vec2 q = own.xy / tile, w = fwidth(q) + 1e-4;
    vec2 k = 2. * (abs(fract((q - .5 * w) * .5) - .5) - abs(fract((q + .5 * w) * .5) - .5)) / w;
    vec3 tiles = mix(vec3(.10, .13, .17), vec3(.19, .24, .30), .5 - .5 * k.x * k.y);
    base = tinted > .5 ? base * tiles : tiles;
  }
  vec3 sunlight = vec3(1., .96, .88) * 1.9, around = mix(vec3(.30, .28, .26), vec3(.50, .62, .80), .5 + .5 * n.z);
  float direct = max(dot(n, sun), 0.) > 0. ? lit() : 0.;
  vec3 c = base * (.6 * around + sunlight * max(dot(n, sun), 0.) * direct);
  c += .18 * pow(max(dot(n, normalize(sun + v)), 0.), 40.) * direct * sunlight;
  if (floor_ > .5) c = mix(sky(-v), c, exp(-pow(length(eye - world) / fade, 2.)));
  colour = vec4(film(c), rgba.a);
}`;
const DARK = `#version 300 es
precision highp float; void main() {}`;
const BEHIND = `#version 300 es
uniform mat4 unproject; out vec3 ray;
void main() { vec2 p = vec2(gl_VertexID == 1 ? 3. : -1., gl_VertexID == 2 ? 3. : -1.); ray = (unproject * vec4(p, 1., 0.)).xyz; gl_Position = vec4(p, 1., 1.); }`;
const HEAVEN = `#version 300 es
precision highp float; in vec3 ray; out vec4 colour;
${SKY}
void main() { colour = vec4(film(sky(normalize(ray))), 1.); }`;

function program(gl, vertex, fragment) {
  const made = gl.createProgram();
  for (const [kind, text] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, text); gl.compileShader(shader);
    if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader));
    gl.attachShader(made, shader);
  }
  gl.linkProgram(made);
  if (!gl.getProgramParameter(made, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(made));
  const at = {};
  for (let i = 0; i < gl.getProgramParameter(made, gl.ACTIVE_UNIFORMS); i++) {
    const name = gl.getActiveUniform(made, i).name;
    at[name] = gl.getUniformLocation(made, name);
  }
  return { made, at };
}
function triangles(gl, corners) {
  const array = gl.createVertexArray(), buffer = gl.createBuffer();
  gl.bindVertexArray(array); gl.bindBuffer(gl.ARRAY_BUFFER, buffer); gl.bufferData(gl.ARRAY_BUFFER, corners, gl.STATIC_DRAW);
  for (const k of [0, 1]) { gl.enableVertexAttribArray(k); gl.vertexAttribPointer(k, 3, gl.FLOAT, false, 24, 12 * k); }
  gl.bindVertexArray(null);
  return { array, count: corners.length / 6 };
}

// ---- the scene: a header in JSON, numbers packed by gzip ----
async function unpack() {
  const scene = JSON.parse(document.getElementById("scene").textContent);
  const text = atob(document.getElementById("numbers").textContent.trim()), bytes = Uint8Array.from(text, (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const buffer = await new Response(stream).arrayBuffer();
  const kinds = { float32: Float32Array, int16: Int16Array, uint32: Uint32Array };
  const array = ({ kind, start, count }) => new kinds[kind](buffer, start, count);
  return { ...scene, array, buffer };
}
const UNIT = { sphere, ellipsoid: sphere, cylinder, box: cube, plane: square };

async function main() {
  const scene = await unpack(), get = (id) => document.getElementById(id), canvas = get("view");
  const gl = canvas.getContext("webgl2", { antialias: true, preserveDrawingBuffer: true });
  if (!gl) throw new Error("this browser has no WebGL 2");
  const main = program(gl, VERTEX, FRAGMENT), dark = program(gl, VERTEX, DARK), heaven = program(gl, BEHIND, HEAVEN);
  const nothing = gl.createVertexArray(), unitShapes = {};

  // the objects to draw
  const meshes = scene.meshes.map(({ vertex, face }) => triangles(gl, facets(scene.array(vertex), scene.array(face))));
  const shapes = scene.shapes.map((s) => {
    if (s.kind === "mesh") return { ...s, scale: [1, 1, 1], mesh: meshes[s.mesh] };
    if (s.kind === "capsule") return { ...s, scale: [1, 1, 1], mesh: triangles(gl, capsule(s.size[0], s.size[1])) };
    unitShapes[s.kind] ??= triangles(gl, UNIT[s.kind]());
    const [a, b, c] = s.size, scale = { sphere: [a, a, a], cylinder: [a, a, b], plane: [a, b, 1] }[s.kind] ?? [a, b, c];
    return { ...s, scale, mesh: unitShapes[s.kind] };
  });
  const pieces = scene.pieces.rgba, lines = scene.array(scene.pieces.lines);
  if (pieces.length) { unitShapes.cylinder ??= triangles(gl, cylinder()); unitShapes.sphere ??= triangles(gl, sphere()); }
  const positions = scene.array(scene.positions), quaternions = scene.array(scene.quaternions), cameras = scene.cameras.map((c) => ({ ...c, pos: scene.array(c.pos), quat: scene.array(c.quat) }));
  const { frames, worlds, bodies, fps } = scene, columns = Math.ceil(Math.sqrt(worlds));
  const offset = (w) => [scene.spacing * ((w % columns) - (columns - 1) / 2), scene.spacing * (Math.floor(w / columns) - (Math.ceil(worlds / columns) - 1) / 2), 0];

  // interpolates poses between frames
  const blend = (p, q, k, t) => {
    const row = (f) => [p[3 * f], p[3 * f + 1], p[3 * f + 2]], spin = (f) => [0, 1, 2, 3].map((i) => q[4 * f + i] / 32767);
    const [i, j] = k, a = spin(i), b = spin(j), s = a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3] < 0 ? -1 : 1;
    const quat = a.map((x, n) => (1 - t) * x + s * t * b[n]), size = Math.hypot(...quat) || 1;
    return { pos: add(mul(row(i), 1 - t), mul(row(j), t)), quat: quat.map((x) => x / size) };
  };
  const split = (time) => { const f = Math.min(time * fps, frames - 1), i = Math.floor(f); return [i, Math.min(i + 1, frames - 1), f - i]; };
  const poseOf = (body, world, time) => {
    const [i, j, t] = split(time), row = (f) => (f * worlds + world) * bodies + body;
    const pose = blend(positions, quaternions, [row(i), row(j)], t);
    return { pos: add(pose.pos, offset(world)), quat: pose.quat };
  };

  const home = scene.follow >= 0 ? poseOf(scene.follow, 0, 0).pos : [0, 0, 0];

  // what the user can change
  const view = { target: scene.center.slice(), distance: scene.distance, azimuth: scene.azimuth, elevation: scene.elevation };
  const state = { time: 0, playing: frames > 1, shift: [0, 0, 0] };
  const length = (frames - 1) / fps;
  for (const name of ["free camera", ...cameras.map((c) => c.name)]) get("camera").add(new Option(name));
  get("follow").checked = scene.follow >= 0 && scene.following;
  get("follow").disabled = scene.follow < 0;
  get("place").max = Math.max(length, 1e-6);
  // SVG, because not every font has these symbols
  const PAUSE = '<svg viewBox="0 0 10 10" width="12" height="12"><path d="M1 0h3v10h-3zM6 0h3v10h-3z" fill="currentColor"/></svg>';
  const PLAY = '<svg viewBox="0 0 10 10" width="12" height="12"><path d="M1 0l9 5-9 5z" fill="currentColor"/></svg>';
  const playing = (on) => { state.playing = on; get("play").innerHTML = on ? PAUSE : PLAY; };
  const jump = (time) => { state.time = Math.min(Math.max(time, 0), length); };
  playing(state.playing);
  get("play").onclick = () => playing(!state.playing);
  get("place").oninput = () => { playing(false); jump(Number(get("place").value)); };
  addEventListener("keydown", (e) => {
    if (e.key === " ") { playing(!state.playing); e.preventDefault(); }
    if (e.key === "ArrowRight" || e.key === "ArrowLeft") { playing(false); jump(state.time + (e.key === "ArrowRight" ? 1 : -1) / fps); e.preventDefault(); }
  });
  const fingers = new Map();
  canvas.onpointerdown = (e) => { canvas.setPointerCapture(e.pointerId); fingers.set(e.pointerId, [e.clientX, e.clientY]); };
  canvas.onpointerup = canvas.onpointercancel = (e) => fingers.delete(e.pointerId);
  canvas.oncontextmenu = (e) => e.preventDefault();
  canvas.onpointermove = (e) => {
    const last = fingers.get(e.pointerId);
    if (!last) return;
    const dx = e.clientX - last[0], dy = e.clientY - last[1];
    if (fingers.size === 2) {
      const other = [...fingers].find(([id]) => id !== e.pointerId)[1], far = (p) => Math.hypot(p[0] - other[0], p[1] - other[1]);
      view.distance *= far(last) / Math.max(far([e.clientX, e.clientY]), 1);
    } else if (e.buttons === 2 || e.shiftKey) {
      const { right, up } = axes(), step = view.distance / canvas.clientHeight;
      view.target = add(view.target, add(mul(right, -dx * step), mul(up, dy * step)));
    } else {
      view.azimuth -= 0.4 * dx; view.elevation = Math.min(Math.max(view.elevation - 0.4 * dy, -89), 89);
    }
    fingers.set(e.pointerId, [e.clientX, e.clientY]);
  };
  canvas.addEventListener("wheel", (e) => { view.distance *= Math.exp(0.001 * e.deltaY); e.preventDefault(); }, { passive: false });
  const axes = () => {
    const a = view.azimuth * Math.PI / 180, e = view.elevation * Math.PI / 180, flat = Math.cos(e);
    const forward = [flat * Math.cos(a), flat * Math.sin(a), Math.sin(e)], right = [Math.sin(a), -Math.cos(a), 0];
    return { right, up: cross(right, forward), back: mul(forward, -1) };
  };
  const eyeNow = () => {
    const chosen = cameras[get("camera").selectedIndex - 1];
    if (!chosen) {
      const frame = axes(), middle = add(view.target, state.shift);
      return { ...frame, eye: add(middle, mul(frame.back, view.distance)), middle, fovy: Math.PI / 4 };
    }
    const [i, j, t] = split(state.time), { pos, quat } = blend(chosen.pos, chosen.quat, [i, j], t);
    const back = turn(quat, [0, 0, 1]);
    return { right: turn(quat, [1, 0, 0]), up: turn(quat, [0, 1, 0]), back, eye: pos, middle: sub(pos, mul(back, view.distance)), fovy: chosen.fovy * Math.PI / 180 };
  };

  // the depth texture of the shadow map
  const size = 2048, depth = gl.createTexture(), target = gl.createFramebuffer();
  gl.bindTexture(gl.TEXTURE_2D, depth);
  gl.texStorage2D(gl.TEXTURE_2D, 1, gl.DEPTH_COMPONENT24, size, size);
  for (const [name, value] of [[gl.TEXTURE_MIN_FILTER, gl.LINEAR], [gl.TEXTURE_MAG_FILTER, gl.LINEAR], [gl.TEXTURE_COMPARE_MODE, gl.COMPARE_REF_TO_TEXTURE], [gl.TEXTURE_WRAP_S, gl.CLAMP_TO_EDGE], [gl.TEXTURE_WRAP_T, gl.CLAMP_TO_EDGE]]) gl.texParameteri(gl.TEXTURE_2D, name, value);
  gl.bindFramebuffer(gl.FRAMEBUFFER, target);
  gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.DEPTH_ATTACHMENT, gl.TEXTURE_2D, depth, 0);

  function drawAll(code, list) {
    for (const { shape, place } of list) {
      gl.uniformMatrix4fv(code.at.place, false, place);
      gl.uniform3fv(code.at.size, shape.scale);
      if (code === main) {
        gl.uniform4fv(code.at.rgba, shape.rgba);
        gl.uniform1f(code.at.floor_, shape.kind === "plane" ? 1 : 0);
        gl.uniform1f(code.at.tinted, shape.tinted ? 1 : 0);
      }
      gl.bindVertexArray(shape.mesh.array);
      gl.drawArrays(gl.TRIANGLES, 0, shape.mesh.count);
    }
  }
  function visible() {
    const list = [];
    for (let w = 0; w < worlds; w++) {
      const poses = new Map();
      for (const shape of shapes) {
        if ((shape.site && !get("sites").checked) || (shape.hidden && !get("hidden").checked) || (shape.kind === "plane" && w > 0)) continue;
        if (!poses.has(shape.body)) poses.set(shape.body, poseOf(shape.body, w, state.time));
        const { pos, quat } = poses.get(shape.body);
        list.push({ shape, place: rigid(add(pos, turn(quat, shape.pos)), compose(quat, shape.quat)) });
      }
      list.push(...straightPieces(w));
    }
    return list;
  }
  function straightPieces(w) {
    // each line is a cylinder with balls at its ends
    const list = [], [i, j, t] = split(state.time), row = (f, k) => 7 * ((f * worlds + w) * pieces.length + k);
    pieces.forEach((rgba, k) => {
      const a = row(i, k), b = row(j, k), radius = lines[a + 6];
      if (radius <= 0 || lines[b + 6] <= 0) return;
      const point = (n) => add([0, 1, 2].map((m) => (1 - t) * lines[a + n + m] + t * lines[b + n + m]), offset(w));
      const start = point(0), end = point(3), along = sub(end, start), d = unit(along);
      const quat = d[2] > -0.9999 ? [1 + d[2], -d[1], d[0], 0] : [0, 1, 0, 0], size = Math.hypot(...quat);
      const piece = (kind, scale, place) => list.push({ shape: { kind, scale, rgba, tinted: false, mesh: unitShapes[kind] }, place });
      piece("cylinder", [radius, radius, Math.hypot(...along) / 2], rigid(mul(add(start, end), 0.5), quat.map((x) => x / size)));
      for (const ball of [start, end]) piece("sphere", [radius, radius, radius], rigid(ball, [1, 0, 0, 0]));
    });
    return list;
  }
  function draw() {
    const scale = Math.min(devicePixelRatio, 2), width = Math.round(canvas.clientWidth * scale), height = Math.round(canvas.clientHeight * scale);
    if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
    if (get("follow").checked && scene.follow >= 0) {
      const way = sub(poseOf(scene.follow, 0, state.time).pos, home), room = 0.2 * view.distance;
      // the view follows sideways motion fully, but vertical motion only beyond `room`, so that a jump is visible
      state.shift = [way[0], way[1], way[2] - Math.min(Math.max(way[2], -room), room)];
    } else state.shift = [0, 0, 0];
    const cam = eyeNow(), list = visible(), solid = list.filter((d) => d.shape.rgba[3] >= 1), glass = list.filter((d) => d.shape.rgba[3] < 1);
    const camera = times(perspective(cam.fovy, width / height, 0.01 * view.distance, 200 * Math.max(view.distance, scene.extent)), look(cam.eye, cam.right, cam.up, cam.back));
    // the sun is behind the left shoulder of the camera
    const level = Math.max(Math.hypot(cam.right[0], cam.right[1]), 1e-6), side = mul([cam.right[0], cam.right[1], 0], 1 / level), behind = [side[1], -side[0], 0];
    const sun = unit(add(add(mul(side, -0.5), mul(behind, 0.45)), [0, 0, 0.95]));
    const east = unit(cross([0, 1, 0.01], sun)), north = cross(sun, east), reach = Math.max(0.75 * view.distance, 0.5 * scene.extent);
    const light = times(box(reach, 4 * reach + scene.extent), look(cam.middle, east, north, sun));

    gl.enable(gl.DEPTH_TEST); gl.depthMask(true); gl.disable(gl.BLEND);
    gl.bindFramebuffer(gl.FRAMEBUFFER, target); gl.viewport(0, 0, size, size); gl.clear(gl.DEPTH_BUFFER_BIT);
    const shadowed = get("shadows").checked;
    if (shadowed) {
      gl.useProgram(dark.made);
      gl.uniformMatrix4fv(dark.at.camera, false, light);
      gl.enable(gl.POLYGON_OFFSET_FILL); gl.polygonOffset(1.5, 2);
      drawAll(dark, solid.filter((d) => d.shape.kind !== "plane"));
      gl.disable(gl.POLYGON_OFFSET_FILL);
    }
    gl.bindFramebuffer(gl.FRAMEBUFFER, null); gl.viewport(0, 0, width, height); gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    gl.depthMask(false); gl.disable(gl.DEPTH_TEST);
    gl.useProgram(heaven.made);
    const f = Math.tan(cam.fovy / 2), r = mul(cam.right, f * width / height), u = mul(cam.up, f), b = mul(cam.back, -1);
    gl.uniformMatrix4fv(heaven.at.unproject, false, [...r, 0, ...u, 0, ...b, 0, 0, 0, 0, 0]);
    gl.bindVertexArray(nothing); gl.drawArrays(gl.TRIANGLES, 0, 3);
    gl.enable(gl.DEPTH_TEST); gl.depthMask(true);
    gl.useProgram(main.made);
    gl.uniformMatrix4fv(main.at.camera, false, camera); gl.uniformMatrix4fv(main.at.light, false, light);
    gl.uniform3fv(main.at.eye, cam.eye); gl.uniform3fv(main.at.sun, sun);
    gl.uniform1f(main.at.tile, scene.tile); gl.uniform1f(main.at.fade, 8 * Math.max(scene.extent, 0.5 * view.distance)); gl.uniform1f(main.at.shadowed, shadowed ? 1 : 0);
    gl.uniform1i(main.at.depth, 0);
    gl.bindTexture(gl.TEXTURE_2D, depth);
    drawAll(main, solid);
    gl.enable(gl.BLEND); gl.blendFunc(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA); gl.depthMask(false);
    const far = (d) => dot(sub(d.place.slice(12, 15), cam.eye), cam.back);
    drawAll(main, glass.sort((p, q) => far(p) - far(q)));
    get("place").value = state.time;
    if (frames > 1) get("time").textContent = `${state.time.toFixed(2)} / ${length.toFixed(2)} s`;
  }
  let before = performance.now();
  function tick(now) {
    if (state.playing) {
      state.time += 0.001 * (now - before) * Number(get("speed").value);
      if (state.time > length) state.time = length > 0 ? state.time % length : 0;
    }
    before = now;
    draw();
    requestAnimationFrame(tick);
  }
  // Rays from the eye through a point of the canvas (pixels from the left and top), one in the frame of each world.
  const raysAt = (x, y) => {
    const cam = eyeNow(), f = Math.tan(cam.fovy / 2), { clientWidth: w, clientHeight: h } = canvas;
    const along = add(mul(cam.back, -1), add(mul(cam.right, f * w / h * (2 * x / w - 1)), mul(cam.up, f * (1 - 2 * y / h))));
    return Array.from({ length: worlds }, (_, k) => ({ point: sub(cam.eye, offset(k)), direction: unit(along) }));
  };
  // for tests, for pages that embed the player, and for live.js, which overwrites the buffer of poses
  window.diffsim = { jump: (time) => { playing(false); jump(time); draw(); }, view, draw, length, frames, scene, canvas, raysAt };
  const asked = new URLSearchParams(location.hash.slice(1));
  if (asked.has("t")) window.diffsim.jump(Number(asked.get("t")));
  requestAnimationFrame(tick);
  document.body.dataset.ready = "yes";
}
const ready = main().catch((error) => { const note = document.getElementById("error"); note.hidden = false; note.textContent = error.message; document.body.dataset.ready = "error"; throw error; });
