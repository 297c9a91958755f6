const { menus, curves } = $data;
const form = document.getElementById("choices"), said = document.getElementById("said");
const lines = [...document.querySelectorAll("[data-v]")];
const ends = lines.slice(0, 2).map((line) => JSON.parse(line.dataset.v));
const inputs = Object.entries(menus).map(([name, values]) => {
  const label = form.appendChild(document.createElement("label"));
  const range = document.createElement("input"), value = document.createElement("output");
  Object.assign(range, { type: "range", min: 0, max: values.length - 1, value: Math.min(1, values.length - 1) });
  range.setAttribute("aria-label", name);
  label.append(name, range, value);
  range.addEventListener("input", show);
  return { name, values, range, value };
});
inputs[0].range.value = 0;
inputs[3].range.value = 2;
function path(values) {
  return values.map((value, i) => {
    const [[x, low], [, high]] = ends.map((end) => end[i]);
    return (i ? "L" : "M") + x + " " + (low + ((high - low) * value) / 1000).toFixed(1);
  }).join("");
}
function draw(first, pair) {
  pair.forEach((values, i) => lines[first + i].querySelector("path").setAttribute("d", path(values)));
}
function show() {
  inputs.forEach((one) => {
    one.value.textContent = one.values[one.range.value];
    one.range.setAttribute("aria-valuetext", one.value.textContent);
  });
  const now = curves[inputs.map((one) => one.range.value).join(".")];
  draw(2, now);
  const [train, test] = now.map((values) => (values.at(-1) / 1000).toFixed(3));
  said.textContent = "After training: train " + train + ", test " + test + ".";
  return now;
}
document.getElementById("keep").addEventListener("click", () => draw(0, show()));
draw(0, show());
