// Light or dark, as it was chosen last. This runs before the first paint, so that the page never flashes.
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try {
    chosen = localStorage.getItem("hgclr-theme");
  } catch {
    // Storage may be forbidden; the system's choice holds then.
  }
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;

  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);

  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const show = () => button.setAttribute("aria-pressed", String(dark()));
    button.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      try {
        localStorage.setItem("hgclr-theme", root.dataset.theme);
      } catch {
        // It holds until the page is left.
      }
      show();
    });
    system.addEventListener("change", show);
    show();
  });
})();
