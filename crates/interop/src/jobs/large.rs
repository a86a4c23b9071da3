//! Tests that oversized job files are rejected before they cost time or memory.

use super::tests::refused;
use super::vdbench;

/// Repeats a text, replacing `@` with the number of the repetition.
fn many(text: &str, times: usize) -> String {
    (0..times).map(|number| text.replace('@', &number.to_string())).collect()
}

#[test]
fn what_would_grow_beyond_all_bounds_is_refused_with_the_bound() {
    for (text, words) in [
        (many("[a@]\nsize=1m\n", 1001), "up to 1000 sections"),
        (format!("[global]\n{}{}", many("bs=4k\n", 1000), many("[a@]\nsize=1m\n", 900)), "65536 options"),
        (format!("[a]\ndescription={}\n", "x".repeat(8 << 20)), "65536 options"),
        (format!("[a]\ndescription={}\n", "${SIZE}".repeat(40_000)), "longer than 65536 bytes"),
        (many("[a@]\nsize=1m\n", 201), "up to 200 jobs at the same time"),
        (
            "[a]\nsize=1m\nrw=randwrite\nverify=crc32c\nnumjobs=4000000000\n".into(),
            "up to 200 jobs at the same time",
        ),
        (
            "[a]\nsize=1m\nrw=randwrite\nverify=crc32c\noffset_increment=1m\nnumjobs=4000000000\n".into(),
            "up to 200 jobs",
        ),
    ] {
        let error = refused(&text);
        assert!(error.contains(words), "{words}: {}", error.chars().take(500).collect::<String>());
    }
    let start = "sd=sd1,lun=/a,size=1g\nwd=wd1,sd=*\n";
    for (text, words) in [
        (format!("{start}{}", many("rd=rd@,wd=*\n", 1001)), "up to 1000 definitions"),
        (
            format!("{start}wd=default,xfersize={}\n{}", "4k,".repeat(900), many("wd=w@,sd=*\n", 100)),
            "65536 keys",
        ),
        (format!("{start}rd=rd1,wd=*,iorate=({})\n", "1,".repeat(2000)), "1000 values of a key"),
        (
            format!("{}wd=w1,sd=*\nrd=rd1,wd=*\n", many("sd=sd@,lun=/a@,size=1g\n", 300)),
            "300 workloads run at the same time",
        ),
        (
            format!(
                "{}wd=w1,sd=*\nrd=rd1,wd=*,forthreads=(1-100,1)\n",
                many("sd=sd@,lun=/a@,size=1g\n", 150)
            ),
            "up to 10000 workloads",
        ),
    ] {
        let error = vdbench::read("parameters", &text).expect_err(words).to_string();
        assert!(error.contains(words), "{words}: {}", error.chars().take(500).collect::<String>());
    }
}

#[test]
fn no_more_is_complained_of_than_anybody_reads() {
    let error = refused(&format!("[a]\n{}", many("nonsense@=1\n", 50_000)));
    assert_eq!(error.lines().count(), 100);
}
