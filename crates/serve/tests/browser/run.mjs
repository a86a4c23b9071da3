// Looks at every page as people do: light and dark, wide and on a phone, with the keyboard alone, without scripts, and with axe's rules.
// Environment: SITE and LOCKED (addresses of two servers, the second with TOKEN), LIVE (a run that is measuring), PICTURES (a directory),
// ALL (`true` for each width in both colors). Says `following` once it follows that run, `followed` once it has looked at its first part, and
// `done` at the end; any finding is an error.
import axe from "axe-core";
import { chromium } from "playwright-core";

const { SITE, LOCKED, TOKEN, LIVE, PICTURES, ALL } = process.env;
const PAGES = ["/runs", "/runs?text=nothing+is+like+this", "/runs/1", "/runs/3", "/runs/4", "/compare", "/compare?runs=1,2", "/compare?runs=1:vm-raw,1:vm-qcow2",
  "/compare?runs=1,2,4", "/trends", "/fleets", "/fleets/f-1", "/machines", "/machine?name=db7", "/plans", "/nothing", `/runs/${LIVE}`];
const found = [];
// Also where the script itself cannot go on.
process.on("uncaughtException", (error) => { console.log([...found, error.stack].join("\n")); process.exit(1); });
const expect = (is, what) => { if (!is) found.push(what); };

const browser = await chromium.launch({
  executablePath: "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});

// A page that notes everything that goes wrong on it.
const open = async (options, where) => {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  const note = (what) => found.push(`${where()}: ${what}`);
  page.on("console", (message) => {
    // A page that is not there is meant to be missing.
    if (["error", "warning"].includes(message.type()) && !/status of 40[34]/.test(message.text())) note(message.text());
  });
  page.on("pageerror", (error) => note(error.message));
  page.on("dialog", (dialog) => { note(`a dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on("request", (request) => { if (![SITE, LOCKED].some((site) => request.url().startsWith(site)) && !request.url().startsWith("data:")) note(`asks ${request.url()}`); });
  return page;
};

const check = async (page, where) => {
  const trouble = await page.evaluate(() => document.documentElement.dataset.trouble);
  expect(!trouble, `${where}: ${trouble}`);
  await page.evaluate(axe.source);
  const { violations } = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
  for (const { id, nodes } of violations) expect(false, `${where}: axe ${id}: ${nodes.slice(0, 3).map((node) => `${node.html.slice(0, 160)} ${node.failureSummary}`).join(" | ")}`);
};

const LOOKS = [[1280, "light"], [375, "dark"], [1280, "dark"], [375, "light"]];
for (const [width, colorScheme] of ALL === "true" ? LOOKS : LOOKS.slice(0, 2)) {
  let where = "";
  const page = await open({ viewport: { width, height: 800 }, colorScheme, hasTouch: width === 375, isMobile: width === 375 }, () => where);
  for (const path of PAGES) {
    where = `${path} at ${width}, ${colorScheme}`;
    await page.goto(SITE + path);
    // Those in closed parts of the page are drawn when they are opened.
    const plots = page.locator("figure .plot").filter({ visible: true });
    if (await plots.count() > 0) {
      // Drawn when it comes into view.
      await plots.first().scrollIntoViewIfNeeded();
      await plots.first().locator(".main-svg").first().waitFor({ timeout: 60000 });
      await page.evaluate(() => scrollTo(0, 0));
    }
    if (path === "/trends") expect(await plots.count() > 0, `${where}: no chart`);
    await check(page, where);
    const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    expect(over <= 0, `${where}: ${over} pixels too wide`);
    const name = path.replace(/[^a-z0-9]+/gi, "-").replace(/^-|-$/g, "");
    await page.screenshot({ path: `${PICTURES}/${name}-${width}-${colorScheme}.png` });
  }
  await page.context().close();
}

{
  // The keyboard alone: choose two runs, compare them, note something.
  const page = await open({ viewport: { width: 1280, height: 800 } }, () => "keyboard");
  const focused = (selector) => page.evaluate((selector) => document.activeElement?.matches(selector) ?? false, selector);
  const tabTo = async (selector) => {
    for (let i = 0; i < 400; i++) {
      if (await focused(selector)) return;
      await page.keyboard.press("Tab");
    }
    found.push(`keyboard: no way to ${selector}`);
  };
  await page.goto(`${SITE}/runs`);
  await page.keyboard.press("Tab");
  expect(await focused(".skip"), "keyboard: the first stop is the way to the content");
  await page.keyboard.press("Enter");
  expect(await focused("main"), "keyboard: the content has the focus");
  expect(await page.locator("form[data-compare] button").isDisabled(), "keyboard: one run is no comparison");
  for (const run of [2, 1]) {
    await tabTo(`input[name=run][value="${run}"]`);
    await page.keyboard.press("Space");
  }
  await tabTo("form[data-compare] button");
  await Promise.all([page.waitForURL(/runs=2,1$/), page.keyboard.press("Enter")]);
  await page.goto(`${SITE}/runs/3`);
  await tabTo("#notes summary");
  await page.keyboard.press("Enter");
  await tabTo("#tags");
  await page.keyboard.type("by-hand");
  await tabTo("#text");
  await page.keyboard.type("no mouse");
  await tabTo("#notes button");
  await Promise.all([page.waitForURL(/runs\/3#notes$/), page.keyboard.press("Enter")]);
  expect((await page.locator("#notes").innerText()).includes("no mouse"), "keyboard: the note is kept");
  await page.context().close();
}

{
  // Without scripts everything can be read, and forms work.
  const page = await open({ javaScriptEnabled: false }, () => "no script");
  await page.goto(`${SITE}/runs/1`);
  expect((await page.locator("main").innerText()).includes("What each layer costs"), "no script: the report is there");
  await page.goto(`${SITE}/runs/${LIVE}`);
  expect(await page.locator("main .state").count() === 1, "no script: the state is there");
  await page.context().close();
}

{
  const page = await open({}, () => "login");
  await page.goto(`${LOCKED}/runs`);
  await check(page, "login");
  await page.getByLabel("The server's token").fill("not the token at all");
  await page.getByRole("button", { name: "Log in" }).click();
  expect((await page.locator("main").innerText()).includes("not the server's token"), "login: a wrong token is refused");
  await page.goto(`${LOCKED}/runs?tag=raid5`);
  await page.getByLabel("The server's token").fill(TOKEN);
  await Promise.all([page.waitForURL(/\/runs\?tag=raid5$/), page.getByRole("button", { name: "Log in" }).click()]);
  await check(page, "logged in");
  await page.getByRole("button", { name: "Log out" }).click();
  await page.goto(`${LOCKED}/runs`);
  expect(new URL(page.url()).pathname === "/login", "login: logged out");
  await page.context().close();
}

{
  // A run that is measuring, to its end.
  const page = await open({ viewport: { width: 1280, height: 800 } }, () => "live");
  await page.goto(`${SITE}/runs/${LIVE}`);
  await page.waitForFunction(() => Number(document.documentElement.dataset.states) > 0);
  console.log("following");
  await page.getByText("So far").waitFor({ timeout: 60000 });
  await page.screenshot({ path: `${PICTURES}/live.png` });
  await check(page, "live");
  console.log("followed");
  await page.getByRole("heading", { name: "What each layer costs" }).waitFor({ timeout: 60000 });
  expect(await page.locator("[data-events]").count() === 0, "live: the report is in its place");
  await page.context().close();
}

await browser.close();
if (found.length > 0) {
  console.log(found.join("\n"));
  process.exit(1);
}
console.log("done");
