//! Classifies messages from an agent by their relation to the pending request.

use iotax_model::wire::Event;

/// A message from an agent, classified by its relation to the pending request.
pub(super) enum Heard<T> {
    /// The final answer to the request.
    Answer(T),
    /// An intermediate message, such as progress; the answer is still to come.
    More,
    /// A message that does not fit the request; holds its first 120 characters.
    Foreign(String),
}

impl<T> Heard<T> {
    /// Classifies an event as one that does not fit the request.
    pub(super) fn foreign(event: &Event) -> Self {
        Self::Foreign(format!("{event:?}").chars().take(120).collect())
    }
}
