//! Messages from an agent, classified by their relation to the pending request.

use iotax_model::wire::Event;

/// A message from the agent, classified by its relation to the pending request.
pub(super) enum Heard<T> {
    /// The answer.
    Answer(T),
    /// Part of the answer; more will come.
    More,
    /// Does not belong to the request; holds the beginning of the message.
    Foreign(String),
}

impl<T> Heard<T> {
    /// An event that does not belong to the request.
    pub(super) fn foreign(event: &Event) -> Self {
        Self::Foreign(format!("{event:?}").chars().take(120).collect())
    }
}
