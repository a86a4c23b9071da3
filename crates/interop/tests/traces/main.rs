//! Tests of trace readers on handmade files with known content.

mod binary;
mod merged;
mod written;

use iotax_interop::trace::read;
use iotax_model::trace::{TraceFormat, TracedIo, TracedOperation};

/// Returns time (ns), kind, offset, length and latency of all events, or the reason for the end.
type Row = (u64, TracedOperation, u64, u64, Option<u64>);

fn rows(bytes: &[u8]) -> (TraceFormat, Vec<Row>, Option<String>) {
    let (format, events) = read(bytes.to_vec()).expect("recognised");
    let (mut found, mut reason) = (Vec::new(), None);
    for event in events {
        match event {
            Ok(TracedIo { at_ns, operation, offset, length, latency_ns, .. }) => {
                found.push((at_ns, operation, offset, length, latency_ns));
            }
            Err(why) => reason = Some(why),
        }
    }
    (format, found, reason)
}

fn refusal(text: &str) -> String {
    match read(text.as_bytes().to_vec()) {
        Err(reason) => reason,
        Ok((_, mut events)) => events.find_map(Result::err).expect("refused"),
    }
}

const READ: TracedOperation = TracedOperation::Read;
const WRITE: TracedOperation = TracedOperation::Write;

#[test]
fn an_iolog_has_waits_in_version_2_and_times_in_version_3() {
    let text = "fio version 2 iolog\n/f 1 add\n/f 1 open\n/f 1 read 4096 512\n/f 1 wait 1000\n/f 1 write 0 8192\n/f 1 datasync 0 0\n/f 1 trim 0 4096\n/f 1 close\n";
    let all = vec![
        (0, READ, 4096, 512, None),
        (1_000_000, WRITE, 0, 8192, None),
        (1_000_000, TracedOperation::Flush, 0, 0, None),
        (1_000_000, TracedOperation::Trim, 0, 4096, None),
    ];
    assert_eq!(rows(text.as_bytes()), (TraceFormat::Iolog, all, None));
    let text = "fio version 3 iolog\n3 /f add\n5 /f open\n17 /f read 4096 512\n2017 /g write 0 8192\n2018 /f close\n";
    let all = vec![(17_000, READ, 4096, 512, None), (2_017_000, WRITE, 0, 8192, None)];
    assert_eq!(rows(text.as_bytes()), (TraceFormat::Iolog, all, None));
}

#[test]
fn texts_of_other_tools_are_read_by_their_columns() {
    // 128166372003061629 is 100 ns since 1601.
    let msr =
        "128166372003061629,usr,0,Read,7014609920,24576,41286\n128166372013061629,usr,1,Write,512,512,100\n";
    let (format, all, reason) = rows(msr.as_bytes());
    assert_eq!((format, reason, all[1].0 - all[0].0), (TraceFormat::Msr, None, 1_000_000_000));
    assert_eq!(
        all.iter().map(|row| (row.2, row.4)).collect::<Vec<_>>(),
        [(7_014_609_920, Some(4_128_600)), (512, Some(10_000))]
    );
    let alibaba = "3,R,4096,8192,1577808000000021\n3,W,0,512,1577808000000022\n";
    let (format, all, _) = rows(alibaba.as_bytes());
    assert_eq!((format, all[0].1, all[1].0 - all[0].0), (TraceFormat::Alibaba, READ, 1000));
    let tencent = "1538323199,8,16,0,1063\n1538323200,0,1,1,7\n";
    let (format, all, _) = rows(tencent.as_bytes());
    assert_eq!(
        (format, &all[0]),
        (TraceFormat::Tencent, &(1_538_323_199_000_000_000, READ, 4096, 8192, None))
    );
    assert_eq!(all[1].1, WRITE);
    let fiu = "89966590111 4892 syslogd 904265560 8 W 6 0 531e779d0b2c8ffcc4e7d8ee4d8ec6b3\n89966600000 5 a b 1 R 6 0\n";
    let (format, all, reason) = rows(fiu.as_bytes());
    assert_eq!((format, all[0]), (TraceFormat::Fiu, (89_966_590_111, WRITE, 904_265_560 * 512, 4096, None)));
    assert_eq!(reason.as_deref(), Some("line 2: the block is \"b\"; accepted: a whole number below 2^64"));
    let spc = "0,20941264,8192,W,0.551706,x\n1,8,512,r,0.554041\n";
    let all = vec![(551_706_000, WRITE, 20_941_264 * 512, 8192, None), (554_041_000, READ, 4096, 512, None)];
    assert_eq!(rows(spc.as_bytes()), (TraceFormat::Spc, all, None));
}

#[test]
fn blkparse_tells_issue_and_completion() {
    let text = "\
  8,0    1        1     0.000000000   697  Q   W 223490 + 8 [kjournald]
  8,0    1        2     0.000001829   697  G   W 223490 + 8 [kjournald]
  8,0    1        3     0.000004000   697  D WFS 223490 + 8 [kjournald]
  8,0    0        4     0.000010000   700  D   R 16 + 1 [cat]
  8,0    1        5     0.000104000     0  C WFS 223490 + 8 [0]
  8,0    1        6     0.000200000   697  D  FN [kjournald]
  8,0    1        7     0.000210000   697  D  FF 0 [kjournald]
  8,0    1        8     0.000230000     0  C   R 16 + 1 [0]
CPU0 (8,0):
 Reads Queued:           0,        0KiB
";
    let (format, all, reason) = rows(text.as_bytes());
    assert_eq!((format, reason), (TraceFormat::Blkparse, None));
    assert_eq!(
        all[..2],
        [(4000, WRITE, 223_490 * 512, 4096, Some(100_000)), (10_000, READ, 8192, 512, Some(220_000))]
    );
    assert_eq!(all[2..], [200_000, 210_000].map(|at| (at, TracedOperation::Flush, 0, 0, None)));
}

#[test]
fn what_is_broken_ends_in_a_sentence_with_its_place() {
    for (text, words) in [
        ("", "the file is empty"),
        ("hello\n", "its format is not known; accepted: "),
        ("0, 4096, 4096\n1, 4096, 4096\n", "version 1 of fio's iolog"),
        ("fio version 9 iolog\n", "line 1: it begins with \"fio version 9 iolog\""),
        ("fio version 2 iolog\n/f read 4096\n", "line 2: the length is \"\""),
        ("fio version 2 iolog\n/f read 4096 99999999999999999999999\n", "line 2: "),
        (
            "fio version 2 iolog\n/f wait 18446744073709551615\n",
            "line 2: the wait is 18446744073709551615: too large",
        ),
        ("fio version 2 iolog\n/f erase 0 4096\n", "line 2: \"erase\" is not an action; accepted: add, open"),
        (
            "fio version 3 iolog\n9 /f read 0 512\n3 /f read 0 512\n",
            "line 3: its time, 3 us, is before that of the line above",
        ),
        ("fio version 3 iolog\n9 /f wait 10\n", "line 2: wait belongs to version 2"),
        ("128166372003061629,usr,0,Read,0,512,1\n128166372003061629,usr,0,Read,0\n", "line 2: "),
        ("3,R,4096,8192,1577808000000021\n3,X,0,512,1577808000000022\n", "line 2: \"X\" is no direction"),
        (
            "1538323200,8,16,0,1\n1538323200,8,16,2,1\n",
            "line 2: IOType is \"2\"; accepted: 0 (read) or 1 (write)",
        ),
        ("1538323200,8,16,0,4294967296\n", "line 1: VolumeID is 4294967296: above 2^32"),
        ("18446744073709551615,8,16,0,1\n", "line 1: Timestamp is 18446744073709551615: too large"),
        ("9,8,16,0,1\n9,8,9223372036854775808,0,1\n", "line 2: Size is 9223372036854775808: too large"),
        ("1 2 a 3 4 W 6 0 x\n1 2 a 3\n", "line 2: \"1 2 a 3\" has 4 fields; accepted: 8 or 9"),
        ("1 2 a 3 4 W 6 1048576 x\n", "line 1: the minor number is 1048576; accepted: below 1048576"),
        ("1 2 a 36028797018963968 4 W 6 0 x\n", "line 1: the block is 36028797018963968: too large"),
        ("0,18446744073709551615,8192,W,0.5\n", "line 1: LBA is 18446744073709551615: too large"),
        (
            "8,0 1 1 0.1 697 D W 8 + 8 [x]\n8,0 1 2 0.2 697 D W 18446744073709551615 + 8 [x]\n",
            "line 2: the sector is",
        ),
        ("8,0 1 1 0.1 697 D W 8 + 8 [x]\n8,0 1 2 0.2\n", "line 2: \"8,0 1 2 0.2\" is cut off"),
        (
            "at_ns,latency_ns,operation,offset,length,fua,process,queue\n1,,read,0,512,false,,\n1,,erase,0,512,false,,\n",
            "line 3: \"erase\" is not a known operation",
        ),
    ] {
        let said = refusal(text);
        assert!(said.contains(words), "{text:?}: {said}");
    }
    let endless = format!("fio version 2 iolog\n{}", "x".repeat(1 << 20));
    assert!(refusal(&endless).contains("line 2: it is longer than 65536 bytes"));
}

#[test]
fn lengths_of_nothing_and_of_half_the_world_are_passed_on_as_they_are() {
    let text = "fio version 2 iolog\n/f read 0 0\n/f write 9223372036854775808 9223372036854775808\n";
    let (_, all, reason) = rows(text.as_bytes());
    assert_eq!((all, reason), (vec![(0, READ, 0, 0, None), (0, WRITE, 1 << 63, 1 << 63, None)], None));
}
