//! Several agents that start at once: the guests of a target, and what makes noise beside them.
//!
//! Each agent sets its load up first. When all are ready, the noise starts; when its window has begun, so do those that are
//! measured. An agent that fails keeps nobody waiting: the others do their work to its end, so that they can go on with the
//! next measurement.

use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use iotax_model::record::Outcome;
use iotax_model::wire::{Event, Job};
use iotax_testbed::agent_client::{AgentClient, AgentError};

/// An agent and what it is to do.
pub(super) struct Player<'a> {
    /// Tells it from the others: a guest's number, or a server's address.
    pub(super) name: String,
    pub(super) link: &'a mut AgentClient,
    pub(super) job: Job,
    /// For everything around warm-up and runtime.
    pub(super) slack: Duration,
    /// Whether it makes noise for the others.
    pub(super) is_noise: bool,
}

/// What a player says, and when it was heard.
pub(super) struct Word {
    /// Its place among the players.
    pub(super) player: usize,
    pub(super) at: Instant,
    pub(super) what: What,
}

pub(super) enum What {
    Ready,
    Event(Event),
    /// It has done its part, or failed.
    Ended(Box<Result<Outcome, AgentError>>),
}

/// Has all players play; `hear` gets every word in the order in which they came.
pub(super) fn play(players: Vec<Player<'_>>, hear: &mut dyn FnMut(Word)) {
    let (tell, words) = mpsc::channel();
    let mut barrier = Barrier::new(&players);
    thread::scope(|scope| {
        for (number, player) in players.into_iter().enumerate() {
            let (start, started) = mpsc::channel();
            barrier.starts.push(start);
            let tell = tell.clone();
            scope.spawn(move || {
                // Whoever listens does so until all have ended.
                let say = |what| drop(tell.send(Word { player: number, at: Instant::now(), what }));
                let Player { link, job, slack, .. } = player;
                let ended = link.prepare(&job).and_then(|()| {
                    say(What::Ready);
                    // The barrier opens for all or is still there.
                    let _ = started.recv();
                    link.go(&job, slack, &mut |event| say(What::Event(event.clone())))
                });
                say(What::Ended(Box::new(ended)));
            });
        }
        drop(tell);
        for word in words {
            barrier.pass(&word);
            hear(word);
        }
    });
}

/// Who is waited for before the next ones start.
struct Barrier {
    is_noise: Vec<bool>,
    starts: Vec<Sender<()>>,
    unready: Vec<bool>,
    /// Noise that is not heard yet.
    silent: Vec<bool>,
    noise_started: bool,
    others_started: bool,
}

impl Barrier {
    fn new(players: &[Player<'_>]) -> Self {
        let is_noise: Vec<bool> = players.iter().map(|player| player.is_noise).collect();
        Self {
            unready: vec![true; players.len()],
            silent: is_noise.clone(),
            is_noise,
            starts: Vec::new(),
            noise_started: false,
            others_started: false,
        }
    }

    fn pass(&mut self, word: &Word) {
        match word.what {
            What::Ready => self.unready[word.player] = false,
            What::Event(Event::Measuring) => self.silent[word.player] = false,
            What::Event(_) => {}
            What::Ended(_) => {
                self.unready[word.player] = false;
                self.silent[word.player] = false;
            }
        }
        let all = |still: &[bool]| !still.contains(&true);
        if all(&self.unready) && !self.noise_started {
            self.noise_started = true;
            self.start(true);
        }
        if self.noise_started && all(&self.silent) && !self.others_started {
            self.others_started = true;
            self.start(false);
        }
    }

    fn start(&self, noise: bool) {
        for (start, _) in self.starts.iter().zip(&self.is_noise).filter(|(_, is_noise)| **is_noise == noise) {
            // One that has failed does not listen any more.
            let _ = start.send(());
        }
    }
}
