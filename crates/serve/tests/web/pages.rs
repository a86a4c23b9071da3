//! Tests of every page and its links, also behind a reverse proxy with a path prefix.

use std::collections::BTreeSet;
use std::time::Instant;

use iotax_store::NewRun;

use crate::fleets;
use crate::server::{HOSTILE, Server, hidden, ladder};

/// Returns the links of a page that lead to this server.
fn links(body: &str) -> BTreeSet<String> {
    let found = ["href=\"", "src=\"", "action=\""].into_iter().flat_map(|mark| body.split(mark).skip(1));
    let found = found.filter_map(|rest| rest.split_once('"')).map(|(link, _)| link.replace("&amp;", "&"));
    found
        .map(|link| link.split('#').next().unwrap_or_default().to_owned())
        .filter(|link| link.starts_with('/'))
        .collect()
}

/// Follows all links from the first page, up to a few pages of each kind.
fn walk(server: &Server) -> BTreeSet<String> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![format!("{}/", server.base)]);
    while let Some(link) = open.pop() {
        if !seen.insert(link.clone()) || link.ends_with("/notes") || link.contains("/plans/") {
            continue;
        }
        let answer = server.get(&link);
        assert!(matches!(answer.status, 200 | 303), "{link}: {}\n{}", answer.head, answer.body);
        let next: BTreeSet<String> = match answer.header("location") {
            Some(location) => [location.to_owned()].into(),
            None if answer.header("content-disposition").is_some() => BTreeSet::new(),
            None => links(&answer.body),
        };
        assert!(
            next.iter().all(|link| link.starts_with(&server.base)),
            "{link} leaves {:?}: {next:?}",
            server.base
        );
        open.extend(next);
    }
    seen
}

#[test]
fn every_link_leads_somewhere() {
    let server = Server::start();
    fleets::put(&mut server.store(), "f-1");
    let seen = walk(&server);
    for page in [
        "/runs",
        "/runs/1",
        "/runs/4",
        "/compare",
        "/trends",
        "/fleets",
        "/fleets/f-1",
        "/machines",
        "/machine?name=db7",
        "/plans",
        "/runs/2/plan.toml",
    ] {
        assert!(seen.contains(page), "{page} is not among {seen:?}");
    }
}

#[test]
fn below_a_path_every_link_stays_below_it() {
    let server = Server::with(|config| config.base = "/iotax".into());
    let seen = walk(&server);
    assert!(seen.contains("/iotax/runs/1") && seen.len() > 15, "{seen:?}");
    assert_eq!(server.get("/runs").status, 404, "outside of it there is nothing");
}

#[test]
fn a_run_is_its_report() {
    let server = Server::start();
    let page = server.get("/runs/1").body;
    for part in
        ["What each layer costs", "vm-qcow2-snapshot", "id=\"environment\"", "How to reproduce", "Notes"]
    {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("<style"), "styles are a file");
    assert_eq!(server.get("/runs/5").status, 404);
    let missing = server.get("/runs/5").body;
    assert!(missing.contains("there is no run 5: the store holds runs 1 to 4"), "{missing}");
}

#[test]
fn runs_are_found_and_chosen_to_be_compared() {
    let server = Server::start();
    let found = server.get("/runs?text=DISK+format").body;
    assert!(found.contains("href=\"/runs/2\""), "{found}");
    let chosen = server.get("/compare?run=1&run=2");
    assert_eq!((chosen.status, chosen.header("location")), (303, Some("/compare?runs=1,2")));
    let chosen = server.get("/compare?run=1&run=2&baseline=B&margin=5%25");
    assert_eq!(chosen.header("location"), Some("/compare?runs=1,2&baseline=B&margin=5%25"));
    let compared = server.get("/compare?runs=1,2").body;
    assert!(compared.contains("run 2 against run 1") && compared.contains("kernel"), "{compared}");
    let targets = server.get("/compare?runs=1:vm-raw,1:vm-qcow2").body;
    assert!(targets.contains("run 1:vm-qcow2 against run 1:vm-raw"), "{targets}");
    let several = server.get("/compare?runs=1,2,4").body;
    assert!(several.contains("vs previous") && several.contains("<figure"), "{several}");
    for (wrong, words) in [
        ("runs=1,x", "&quot;x&quot; is no run; accepted: RUN or RUN:TARGET"),
        ("runs=1,1", "both are 1; within a run two targets can be compared"),
        ("runs=1,99", "there is no run 99"),
        ("runs=1,2&margin=9", "is not a margin; accepted"),
        ("runs=1:a,2", "has no target"),
    ] {
        let answer = server.get(&format!("/compare?{wrong}"));
        assert!(
            matches!(answer.status, 400 | 404) && answer.body.contains(words),
            "{wrong}: {}",
            answer.body
        );
    }
}

#[test]
fn a_machine_says_what_changed() {
    let page = Server::start().get("/machine?name=db7").body;
    assert!(page.contains("6.18.5") && page.contains("6.19.0") && page.contains("Between run"), "{page}");
}

#[test]
fn notes_are_kept_and_found() {
    let server = Server::start();
    let form = server.notes_form(1);
    let form = format!("{form}&tags=slow,%20raid5&text=Battery%20of%20the%20controller%0D%0Ais%20dead");
    let kept = server.post("/runs/1/notes", "", &form);
    assert_eq!((kept.status, kept.header("location")), (303, Some("/runs/1#notes")), "{}", kept.body);
    let page = server.get("/runs/1").body;
    assert!(
        page.contains("Battery of the controller\nis dead") && page.contains("/runs?tag=raid5"),
        "{page}"
    );
    let found = server.get("/runs?tag=raid5").body;
    assert!(found.contains("href=\"/runs/1\"") && !found.contains("href=\"/runs/2\""), "{found}");
    assert_eq!(server.store().notes(1).expect("read").tags, ["raid5", "slow"]);
}

#[test]
fn of_two_who_change_the_same_notes_neither_loses_them() {
    let server = Server::start();
    // Both load the same page, and save one after the other.
    let (one, other) = (server.notes_form(1), server.notes_form(1));
    assert_eq!(server.post("/runs/1/notes", "", &format!("{one}&tags=a&text=battery%20dead")).status, 303);
    let sent = format!("{other}&tags=b&text=new%20%3Cb%3Edisk");
    let refused = server.post("/runs/1/notes", "", &sent);
    assert_eq!(refused.status, 409, "{}", refused.body);
    assert!(
        refused.body.contains("battery dead") && refused.body.contains("new &lt;b>disk"),
        "{}",
        refused.body
    );
    assert_eq!(server.store().notes(1).expect("read").text, "battery dead", "nothing was kept yet");
    // The form on the new page contains the current notes.
    let again =
        format!("form_token={}&seen={}", hidden(&refused.body, "form_token"), hidden(&refused.body, "seen"));
    let kept = server.post("/runs/1/notes", "", &format!("{again}&tags=a,b&text=both"));
    assert_eq!(kept.status, 303, "{}", kept.body);
    let notes = server.store().notes(1).expect("read");
    assert_eq!((notes.tags.join(","), notes.text), ("a,b".to_owned(), "both".to_owned()));
    // Saving unchanged notes gives no conflict.
    assert_eq!(server.post("/runs/1/notes", "", &format!("{one}&tags=a,b&text=both")).status, 303);
}

#[test]
fn no_text_of_a_run_is_markup() {
    let server = Server::start();
    for path in [
        "/runs",
        "/runs/4",
        "/plans",
        "/machines",
        "/compare?runs=1,4",
        "/compare?runs=1,2,4",
        "/trends",
        "/api/v1/runs/4",
        "/api/v1/runs",
        "/metrics",
    ] {
        let answer = server.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        let is_page = answer.header("content-type").is_some_and(|kind| kind.starts_with("text/html"));
        if is_page {
            for markup in ["<script>alert", "<img", "<b>tag"] {
                assert!(!answer.body.contains(markup), "{path} has {markup}");
            }
        }
        assert!(!answer.body.contains('\u{202e}') || path == "/metrics", "{path} turns text around");
    }
    assert!(server.get("/runs/4").body.contains("&lt;script&gt;alert(1)"), "{HOSTILE}");
}

#[test]
fn a_thousand_runs_are_one_page() {
    let server = Server::filled(|store| {
        let run = ladder("6.18.5");
        for _ in 0..1000 {
            let new = NewRun { plan: &run.plan, seed: 1, started_at_ms: run.started_at_ms, fleet: None };
            let id = store.create_run(&new).expect("created");
            store.set_environment(id, &run.environment).expect("kept");
        }
    });
    server.get("/runs?limit=1000");
    let start = Instant::now();
    let page = server.get("/runs?limit=1000").body;
    let took = start.elapsed();
    println!("a page of 1,000 runs: {took:?}, {} bytes", page.len());
    assert_eq!(page.matches("<tr>").count(), 1001);
    let page = server.get("/runs").body;
    assert!(page.contains("href=\"/runs?before=901\""), "{page}");
}
