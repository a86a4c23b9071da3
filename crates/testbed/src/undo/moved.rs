//! Tests that files which were moved elsewhere do not count as removed.

use super::*;

/// Creates a directory for undo logs, and a work directory that a test can rename.
fn directories() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let temp = tempfile::tempdir().expect("temp dir");
    let (state, work) = (temp.path().join("state"), temp.path().join("work"));
    fs::create_dir(&work).expect("work dir");
    (temp, state, work)
}

/// Runs `clean`, and checks that `count` effects could not be undone and stay in the log. Returns the reasons.
fn not_undone(state: &Path, count: usize) -> Vec<String> {
    let cleaned = clean(state, false).expect("cleaned");
    assert_eq!((cleaned.undone.len(), cleaned.failed.len()), (0, count), "{cleaned:?}");
    assert_eq!(leftovers(state).expect("readable").len(), count);
    cleaned.failed.into_iter().map(|failure| failure.reason).collect()
}

fn assert_undone(state: &Path, count: usize) {
    let cleaned = clean(state, false).expect("cleaned");
    assert_eq!((cleaned.undone.len(), cleaned.failed.len()), (count, 0), "{cleaned:?}");
    assert!(leftovers(state).expect("readable").is_empty());
}

fn files_in(directory: &Path) -> usize {
    fs::read_dir(directory).expect("there").count()
}

#[test]
fn as_long_as_it_lives_it_finds_what_it_made_wherever_the_directory_is() {
    let (temp, state, work) = directories();
    let mut undo_log = UndoLog::create(&state, "t").expect("undo log");
    let folder = work.join("iotax-t");
    undo_log.make_file(&work.join("new")).expect("file");
    undo_log.make_tree(&work.join("iotax-t.d")).expect("tree");
    undo_log.make_directory(&folder).expect("folder");
    let image = folder.join("image");
    undo_log.record(Effect::File { path: image.clone(), identity: None }).expect("on record");
    fs::write(&image, "ours").expect("written");
    let away = temp.path().join("elsewhere");
    fs::rename(&work, &away).expect("renamed");
    // A new directory of the same name is not iotax's.
    fs::create_dir_all(&folder).expect("made");
    fs::write(&image, "the user's").expect("written");
    let (undone, failed) = undo_log.undo_all();
    assert_eq!((undone.len(), failed.len()), (4, 0), "{failed:?}");
    assert_eq!(files_in(&away), 0);
    assert_eq!(fs::read_to_string(&image).expect("still there"), "the user's");
    assert_eq!(files_in(&state), 0);
}

#[test]
fn a_directory_that_the_user_removed_has_nothing_left_in_it() {
    let (_temp, state, work) = directories();
    let mut undo_log = UndoLog::create(&state, "t").expect("undo log");
    undo_log.make_file(&work.join("new")).expect("file");
    fs::remove_dir_all(&work).expect("removed");
    let (undone, failed) = undo_log.undo_all();
    assert_eq!((undone.len(), failed.len()), (1, 0), "{failed:?}");
}

#[test]
fn afterwards_a_directory_that_was_renamed_or_replaced_is_told_until_it_is_back() {
    let (temp, state, work) = directories();
    let mut undo_log = UndoLog::create(&state, "t").expect("undo log");
    let new = work.join("new");
    undo_log.make_file(&new).expect("file");
    drop(undo_log); // as a killed process does
    let inode = std::os::unix::fs::MetadataExt::ino(&fs::metadata(&work).expect("there"));
    let away = temp.path().join("elsewhere");
    fs::rename(&work, &away).expect("renamed");
    let reasons = not_undone(&state, 1);
    let place = format!("{} is no longer the directory", work.display());
    assert!(
        reasons[0].contains(&place) && reasons[0].contains(&format!("inode {inode} on device ")),
        "{reasons:?}"
    );
    fs::create_dir(&work).expect("made");
    fs::write(&new, "the user's").expect("written");
    assert_eq!(not_undone(&state, 1), reasons);
    assert_eq!(fs::read_to_string(&new).expect("still there"), "the user's");
    fs::remove_dir_all(&work).expect("removed");
    fs::rename(&away, &work).expect("renamed");
    assert_undone(&state, 1);
    assert_eq!(files_in(&work), 0);
}

#[test]
fn another_name_in_its_directory_is_told() {
    let (_temp, state, work) = directories();
    let mut undo_log = UndoLog::create(&state, "t").expect("undo log");
    let (new, tree, folder) = (work.join("new"), work.join("iotax-t.d"), work.join("iotax-t"));
    undo_log.make_file(&new).expect("file");
    undo_log.make_tree(&tree).expect("tree");
    undo_log.make_directory(&folder).expect("folder");
    drop(undo_log);
    let made = [&new, &tree, &folder];
    let names = ["mine", "mine.d", "my folder"];
    made.iter().zip(names).for_each(|(path, name)| fs::rename(path, work.join(name)).expect("renamed"));
    let reasons = not_undone(&state, 3);
    for (reasons, name) in reasons.iter().rev().zip(names) {
        assert_eq!(*reasons, format!("it is called {name} there now; left alone"));
    }
    made.iter().zip(names).for_each(|(path, name)| fs::rename(work.join(name), path).expect("renamed"));
    assert_undone(&state, 3);
    assert_eq!(files_in(&work), 0);
}

#[test]
fn a_file_that_was_moved_away_while_its_process_lived_is_told() {
    let (temp, state, work) = directories();
    let mut undo_log = UndoLog::create(&state, "t").expect("undo log");
    undo_log.make_file(&work.join("new")).expect("file");
    let away = temp.path().join("mine");
    fs::rename(work.join("new"), &away).expect("renamed");
    let (_, failed) = undo_log.undo_all();
    let [failure] = failed.as_slice() else { panic!("{failed:?}") };
    let away = fs::canonicalize(away).expect("there");
    assert_eq!(failure.reason, format!("it is at {} now; left alone", away.display()));
}

#[test]
fn afterwards_what_is_not_in_its_directory_is_told_with_how_it_is_found() {
    let (temp, state, work) = directories();
    let mut undo_log = UndoLog::create(&state, "t").expect("undo log");
    let (new, tree) = (work.join("new"), work.join("iotax-t.d"));
    undo_log.make_file(&new).expect("file");
    undo_log.make_tree(&tree).expect("tree");
    drop(undo_log);
    let made = [&tree, &new];
    let inodes = made.map(|path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).expect("there")));
    let away = |path: &Path| temp.path().join(path.file_name().expect("a name"));
    made.iter().for_each(|path| fs::rename(path, away(path)).expect("renamed"));
    for (reasons, inode) in not_undone(&state, 2).iter().zip(inodes) {
        let found = format!(" -xdev -inum {inode}");
        assert!(reasons.contains("it is not there any more") && reasons.ends_with(&found), "{reasons}");
    }
    for left in leftovers(&state).expect("readable") {
        assert!(left.to_string().contains(", but not as things are: it is not there any more"), "{left}");
    }
    made.iter().for_each(|path| fs::rename(away(path), path).expect("renamed"));
    assert_undone(&state, 2);
    assert_eq!(files_in(&work), 0);
}

#[test]
fn another_name_that_keeps_the_data_is_told() {
    let (temp, state, work) = directories();
    let mut undo_log = UndoLog::create(&state, "t").expect("undo log");
    let other = temp.path().join("other");
    undo_log.make_file(&work.join("new")).expect("file");
    fs::hard_link(work.join("new"), &other).expect("linked");
    drop(undo_log);
    let reasons = not_undone(&state, 1);
    assert!(reasons[0].contains("1 other name keeps its data; find with: find "), "{reasons:?}");
    assert_eq!(files_in(&work), 0);
    assert!(not_undone(&state, 1)[0].contains("it is not there any more"));
    fs::remove_file(other).expect("removed");
    assert_eq!(clean(&state, true).expect("cleaned").failed.len(), 1, "forgotten");
    assert!(leftovers(&state).expect("readable").is_empty());
}

/// Covers a process that was killed after it removed a file, and before it recorded the removal as complete.
#[test]
fn what_was_being_removed_and_is_not_there_is_gone() {
    for removed in [true, false] {
        let (_temp, state, work) = directories();
        let mut undo_log = UndoLog::create(&state, "t").expect("undo log");
        let (entry, _) = undo_log.make_file(&work.join("new")).expect("file");
        undo_log.make_file(&work.join("second")).expect("file");
        undo_log.begin_removal(entry.0);
        if removed {
            fs::remove_file(work.join("new")).expect("removed");
        }
        drop(undo_log);
        assert_undone(&state, 2);
        assert_eq!(files_in(&work), 0);
    }
}

#[test]
fn a_folder_that_was_moved_away_is_told_with_what_is_in_it() {
    let (temp, state, work) = directories();
    let mut undo_log = UndoLog::create(&state, "t").expect("undo log");
    let folder = work.join("iotax-t");
    undo_log.make_directory(&folder).expect("folder");
    let image = folder.join("image");
    undo_log.record(Effect::File { path: image.clone(), identity: None }).expect("on record");
    fs::write(&image, "ours").expect("written");
    drop(undo_log);
    let away = temp.path().join("elsewhere");
    fs::rename(&folder, &away).expect("renamed");
    let reasons = not_undone(&state, 2);
    assert!(reasons[0].contains("iotax-t is no longer the directory"), "{reasons:?}");
    assert!(reasons[1].contains("it is not there any more"), "{reasons:?}");
    fs::rename(&away, &folder).expect("renamed");
    assert_undone(&state, 2);
    assert_eq!(files_in(&work), 0);
}
