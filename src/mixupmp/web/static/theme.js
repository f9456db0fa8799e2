// Light, dark or as the system says; kept where the browser allows it. Runs in the head, so nothing flashes.
(() => {
  const names = ["system", "light", "dark"];
  const read = () => { try { return localStorage.getItem("mixupmp-theme"); } catch { return null; } };
  const keep = (name) => { try { localStorage.setItem("mixupmp-theme", name); } catch { /* a file: page may not keep */ } };
  let current = names.includes(read()) ? read() : "system";
  const apply = () => {
    if (current === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = current;
    for (const button of document.querySelectorAll("[data-theme-switch]")) {
      button.hidden = false;
      button.textContent = { system: "◐ System", light: "☀ Light", dark: "☾ Dark" }[current];
      button.setAttribute("aria-label", `Colors: ${current}. Press to change.`);
    }
    document.dispatchEvent(new CustomEvent("themechange"));
  };
  apply();
  addEventListener("DOMContentLoaded", () => {
    apply();
    for (const button of document.querySelectorAll("[data-theme-switch]")) {
      button.addEventListener("click", () => {
        current = names[(names.indexOf(current) + 1) % names.length];
        keep(current);
        apply();
      });
    }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
})();
