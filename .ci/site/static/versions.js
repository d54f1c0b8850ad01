// Fills the version switch from versions.json, which lists the versions beside this one. Without it (a site opened from
// the disk), the switch shows this version only.
const root = new URL(document.documentElement.dataset.content_root, location.href);
const page = location.href.slice(root.href.length);

for (const select of document.querySelectorAll(".site-versions select")) {
  fetch(new URL("../versions.json", root))
    .then((response) => response.json())
    .then((versions) => {
      const here = select.dataset.version;
      select.replaceChildren(...versions.map((name) => new Option(name, name, name === here, name === here)));
      select.disabled = versions.length < 2;
    })
    .catch(() => {});
  select.addEventListener("change", async () => {
    // The same page, if that version has it.
    const there = new URL(`../${select.value}/`, root);
    const same = new URL(page, there);
    const found = await fetch(same, { method: "HEAD" }).catch(() => ({ ok: false }));
    location.href = found.ok ? same : new URL("index.html", there);
  });
}
