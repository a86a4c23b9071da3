//! Resolves the options of `steadystate`.

use iotax_model::workload::{SteadyCriterion, SteadyFigure, SteadyLimit};

use super::builder::JobBuilder;
use super::layout::Notes;

/// Resolves the criterion that ends a job early. As in fio, it has a default, and without a duration it has no effect.
pub(super) fn steady(draft: &mut JobBuilder, notes: &mut Notes) {
    let keys = &mut draft.keys;
    if keys.steadystate_duration.is_some_and(|duration| duration.0 > 0) {
        let criterion = keys.steadystate.get_or_insert(SteadyCriterion {
            figure: SteadyFigure::Iops,
            is_slope: true,
            limit: SteadyLimit::Percent(0.01),
        });
        if keys.numjobs > Some(1) {
            notes.sentences.push(format!(
                "steadystate = {criterion}: clones of a job are judged together, as with fio's group_reporting"
            ));
        }
        return;
    }
    if keys.steadystate.take().is_some() {
        notes
            .sentences
            .push("steadystate: without a steadystate_duration it has no effect, as in fio".into());
    }
    (keys.steadystate_duration, keys.steadystate_ramp_time) = (None, None);
    keys.steadystate_check_interval = None;
}
