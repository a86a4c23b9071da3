//! Simulated fleets: many members, losses and hangs at any time, and duplicate messages.

use std::collections::{BTreeMap, BTreeSet};

use iotax_model::record::Measurement;
use iotax_model::{Plan, RunState};
use proptest::prelude::*;

use super::*;
use crate::message::Claims;

const SILENCE: Duration = Duration::from_secs(15);
const SECOND: u64 = 1_000_000_000;

fn assignment(mode: FleetMode) -> Assignment {
    let plan = "[[target]]\nname = \"a\"\npath = \"/a\"\n[[workload]]\nrw = \"read\"\n";
    Assignment {
        fleet: "f".into(),
        mode,
        plan: Plan::from_toml(plan).expect("a plan"),
        seed: 1,
        done: Vec::new(),
        overwrite: Vec::new(),
        overwrite_signature: false,
    }
}

/// The fate of a simulated member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Well,
    /// The member's link ends at this step.
    Lost(StepNumber),
    /// The member stops answering at this step.
    Hangs(StepNumber),
    /// The member fails to measure this step and continues with the next.
    Fails(StepNumber),
    /// The member runs a different version.
    Foreign,
}

/// A member that answers at once; its clock is off by a constant.
struct Simulated {
    fate: Fate,
    offset_ns: u64,
    step: StepNumber,
    kept: u64,
    is_gone: bool,
    is_silent: bool,
}

struct World {
    coordinator: Coordinator,
    members: BTreeMap<String, Simulated>,
    steps: StepNumber,
    now_ns: u64,
    /// True to send every part twice.
    twice: bool,
    on_disk: BTreeMap<(String, u64), RunPart>,
    acknowledged: BTreeSet<(String, u64)>,
    /// Members that started each step, with the start time by the coordinator's clock.
    gone: BTreeMap<StepNumber, Vec<(String, u64)>>,
    lost: BTreeMap<String, String>,
    answered: usize,
}

impl World {
    fn new(mode: FleetMode, steps: StepNumber, twice: bool, fates: &[Fate]) -> Self {
        let name = |index: usize| format!("m{index:04}");
        let names = (0..fates.len()).map(|index| (name(index), assignment(mode)));
        let coordinator = Coordinator::new(mode, "v1", SILENCE, names);
        let members = fates.iter().enumerate().map(|(index, fate)| {
            let offset_ns = 1_000 * SECOND * (index as u64 % 7 + 1);
            let simulated =
                Simulated { fate: *fate, offset_ns, step: 0, kept: 0, is_gone: false, is_silent: false };
            (name(index), simulated)
        });
        Self {
            coordinator,
            members: members.collect(),
            steps,
            now_ns: SECOND,
            twice,
            on_disk: BTreeMap::new(),
            acknowledged: BTreeSet::new(),
            gone: BTreeMap::new(),
            lost: BTreeMap::new(),
            answered: 0,
        }
    }

    fn hear(&mut self, member: &str, message: FromMember) {
        let incoming = Incoming::Message { member: member.to_owned(), message, at_ns: self.now_ns };
        let actions = self.coordinator.take(incoming, self.now_ns);
        self.act(actions);
    }

    fn act(&mut self, actions: Vec<CoordinatorAction>) {
        for action in actions {
            match action {
                CoordinatorAction::Send { member, message } => self.deliver(&member, message),
                CoordinatorAction::Keep { member, number, part } => {
                    let key = (member.clone(), number);
                    assert!(self.on_disk.insert(key, *part).is_none(), "{member} {number} is kept once");
                    let actions = self.coordinator.stored(&member, number);
                    self.act(actions);
                }
                CoordinatorAction::Close { member } => self.member(&member).is_gone = true,
                CoordinatorAction::Tell(News::Lost { member, reason }) => {
                    drop(self.lost.insert(member, reason));
                }
                CoordinatorAction::Tell(News::Answered) => self.answered += 1,
                CoordinatorAction::Tell(_) => {}
            }
        }
    }

    fn member(&mut self, name: &str) -> &mut Simulated {
        self.members.get_mut(name).expect("known")
    }

    #[expect(clippy::needless_pass_by_value, reason = "a message is gone once it is sent")]
    fn deliver(&mut self, name: &str, message: ToMember) {
        let now_ns = self.now_ns;
        let member = self.member(name);
        if let ToMember::Acknowledge { number } = message {
            self.acknowledged.insert((name.to_owned(), number));
            return;
        }
        if member.is_gone || member.is_silent {
            return;
        }
        match message {
            ToMember::Ping { number } => {
                let at = now_ns + member.offset_ns;
                let pong = FromMember::Pong {
                    number,
                    received_member_ns: at,
                    sent_member_ns: at,
                    chrony_error_ns: None,
                };
                self.hear(name, pong);
            }
            ToMember::Assign(_) => {
                self.hear(name, FromMember::Checked { claims: Claims::default(), refusal: None });
            }
            ToMember::Begin => self.next(name),
            ToMember::Go { step, at_member_ns } => {
                assert_eq!(step, member.step, "{name}");
                let at_ns = at_member_ns - member.offset_ns;
                self.gone.entry(step).or_default().push((name.to_owned(), at_ns));
                self.measured(name, at_member_ns);
            }
            ToMember::Refused { .. } | ToMember::Cancel | ToMember::Drain | ToMember::Acknowledge { .. } => {}
        }
    }

    /// Makes a member set up its next step.
    fn next(&mut self, name: &str) {
        let steps = self.steps;
        let member = self.member(name);
        member.step += 1;
        if let Fate::Fails(step) = member.fate
            && step == member.step
        {
            member.step += 1;
        }
        let step = member.step;
        match member.fate {
            Fate::Lost(at) if at == step => {
                let lost = Incoming::Lost { member: name.to_owned(), reason: "cut".into() };
                let actions = self.coordinator.take(lost, self.now_ns);
                self.act(actions);
            }
            Fate::Hangs(at) if at == step => member.is_silent = true,
            _ if step > steps => {
                self.hear(name, FromMember::Over { state: RunState::Complete, reason: None });
            }
            _ => self.hear(name, FromMember::Ready { step }),
        }
    }

    /// Makes a member measure its step and send the result.
    fn measured(&mut self, name: &str, at_member_ns: u64) {
        let member = self.member(name);
        member.kept += 1;
        let (step, number) = (member.step, member.kept);
        let began = FromMember::Began {
            step,
            intended_member_ns: at_member_ns,
            at_member_ns: at_member_ns + 1_000_000,
        };
        self.hear(name, began);
        let order = u32::try_from(step).expect("small");
        let part = Box::new(RunPart::Measurement(Measurement { order, ..Measurement::default() }));
        for _ in 0..if self.twice { 2 } else { 1 } {
            self.hear(name, FromMember::Kept { number, part: part.clone() });
        }
        self.next(name);
    }

    fn tick(&mut self) {
        self.now_ns += SECOND / 10;
        let actions = self.coordinator.tick(self.now_ns);
        self.act(actions);
    }

    /// Runs the fleet from start to end.
    fn run(&mut self) {
        for name in self.members.keys().cloned().collect::<Vec<_>>() {
            let is_foreign = self.member(&name).fate == Fate::Foreign;
            let version = if is_foreign { "v0".into() } else { "v1".into() };
            self.hear(&name, FromMember::Hello { protocol: PROTOCOL, version, environment: Box::default() });
        }
        assert_eq!(self.answered, 1, "all have answered");
        self.tick();
        let actions = self.coordinator.begin();
        self.act(actions);
        for _ in 0..2_000 {
            if self.coordinator.is_over() {
                return;
            }
            self.tick();
        }
        panic!("it does not end: {:?}", self.coordinator.members().collect::<Vec<_>>());
    }
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        8 => Just(Fate::Well),
        1 => (1_u64..6).prop_map(Fate::Lost),
        1 => (1_u64..6).prop_map(Fate::Hangs),
        1 => (1_u64..6).prop_map(Fate::Fails),
        1 => Just(Fate::Foreign),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn a_fleet_comes_to_its_end_with_all_that_was_measured(
        fates in prop::collection::vec(fate(), 1..60),
        steps in 1_u64..6,
        twice in any::<bool>(),
    ) {
        let mut world = World::new(FleetMode::Shared, steps, twice, &fates);
        world.run();
        // Everything acknowledged is on disk, and every step that started was acknowledged.
        prop_assert!(world.acknowledged.iter().all(|key| world.on_disk.contains_key(key)));
        let went: usize = world.gone.values().map(Vec::len).sum();
        prop_assert_eq!(world.on_disk.len(), went);
        for (step, members) in &world.gone {
            // All members start at the same time by the coordinator's clock.
            let moments: BTreeSet<u64> = members.iter().map(|(_, at)| *at).collect();
            prop_assert_eq!(moments.len(), 1, "step {}", step);
            // No healthy member misses a step.
            let wells = fates.iter().filter(|fate| **fate == Fate::Well).count();
            prop_assert!(members.len() >= wells, "step {}", step);
        }
        for part in world.on_disk.values() {
            let RunPart::Measurement(measurement) = part else { continue };
            let start = measurement.fleet.expect("known");
            prop_assert!(start.late_ns.abs_diff(1_000_000) <= start.uncertainty_ns, "{start:?}");
        }
        for ((name, member), fate) in world.members.iter().zip(&fates) {
            let expected = match fate {
                Fate::Well | Fate::Fails(_) => None,
                Fate::Lost(at) => (*at <= steps + 1).then_some("cut"),
                Fate::Hangs(at) => (*at <= steps + 1).then_some("no sign of life for 15 s"),
                Fate::Foreign => Some("iotax v0"),
            };
            let lost = world.lost.get(name);
            prop_assert_eq!(lost.is_some(), expected.is_some(), "{} {:?}: {:?}", name, fate, lost);
            if let (Some(lost), Some(expected)) = (lost, expected) {
                prop_assert!(lost.contains(expected), "{lost}");
            }
            prop_assert!(member.is_gone, "{name} has no link any more");
        }
    }
}

#[test]
fn thousands_of_members_begin_each_step_together() {
    let fates = vec![Fate::Well; 3_000];
    let mut world = World::new(FleetMode::Shared, 2, false, &fates);
    world.run();
    assert_eq!(world.gone.values().map(Vec::len).collect::<Vec<_>>(), [3_000, 3_000]);
}

#[test]
fn a_member_of_another_version_is_told_both_versions() {
    let mut world = World::new(FleetMode::Each, 1, false, &[Fate::Foreign, Fate::Well]);
    world.run();
    let reason = &world.lost["m0000"];
    assert!(reason.contains("iotax v0") && reason.contains("this is v1"), "{reason}");
}

#[test]
fn a_second_attempt_does_not_count_as_beginning_with_the_others() {
    let mut world = World::new(FleetMode::Shared, 1, false, &[Fate::Well]);
    world.run();
    let mut coordinator =
        Coordinator::new(FleetMode::Shared, "v1", SILENCE, [("a".to_owned(), assignment(FleetMode::Shared))]);
    let mut go = |message, now_ns| {
        let incoming = Incoming::Message { member: "a".into(), message, at_ns: now_ns };
        let mut actions = coordinator.take(incoming, now_ns);
        if actions.iter().any(|action| matches!(action, CoordinatorAction::Tell(News::Answered))) {
            coordinator.begin();
        }
        actions.extend(coordinator.tick(now_ns));
        actions
    };
    go(FromMember::Hello { protocol: PROTOCOL, version: "v1".into(), environment: Box::default() }, 0);
    go(FromMember::Checked { claims: Claims::default(), refusal: None }, 1);
    let pong = |number, at| FromMember::Pong {
        number,
        received_member_ns: at,
        sent_member_ns: at,
        chrony_error_ns: None,
    };
    go(pong(1, 1), 1);
    go(FromMember::Ready { step: 1 }, SECOND);
    let actions = go(FromMember::Ready { step: 1 }, 3 * SECOND);
    let started = actions.iter().find_map(|action| match action {
        CoordinatorAction::Send { message: ToMember::Go { at_member_ns, .. }, .. } => Some(*at_member_ns),
        _ => None,
    });
    let at_ns = started.expect("it is let go again");
    go(FromMember::Began { step: 1, intended_member_ns: at_ns, at_member_ns: at_ns }, 4 * SECOND);
    let part = Box::new(RunPart::Measurement(Measurement { order: 1, ..Measurement::default() }));
    let kept = go(FromMember::Kept { number: 1, part }, 5 * SECOND);
    let start = kept.iter().find_map(|action| match action {
        CoordinatorAction::Keep { part, .. } => match part.as_ref() {
            RunPart::Measurement(measurement) => measurement.fleet,
            _ => None,
        },
        _ => None,
    });
    assert!(start.expect("known").late_ns >= 1_900_000_000, "{start:?}");
}

#[test]
fn samples_of_leaves_are_told_and_nothing_else_of_them() {
    let mut coordinator =
        Coordinator::new(FleetMode::Each, "v1", SILENCE, [("a".to_owned(), assignment(FleetMode::Each))]);
    let merged =
        Merged { step: 1, interval: 0, members: 2, ios: 7, bytes: 0, latency: iotax_model::Histogram::new() };
    let mut take =
        |message| coordinator.take(Incoming::Message { member: "leaf-1".into(), message, at_ns: 1 }, 1);
    let merged_event = take(FromMember::Sample(merged.clone()));
    let expected = News::Sample { from: "leaf-1".into(), merged: Box::new(merged) };
    assert_eq!(merged_event, [CoordinatorAction::Tell(expected)]);
    assert_eq!(take(FromMember::Doing("something".into())), []);
    assert_eq!(take(FromMember::Over { state: RunState::Complete, reason: None }), []);
}
