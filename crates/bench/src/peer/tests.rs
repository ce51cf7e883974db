//! Peer files good and bad, and which reports they may be attached to.

use super::*;
use crate::report::tests::sample;

const GOOD: &str = r#"
W1115 torch/_inductor: chatter before the rows
{"machine": {"gpu": "NVIDIA H200", "torch": "2.11.0", "cuda": "13.0", "device": "cuda", "l2": 60}}
{"op": "add_f32_1000", "ms": 0.003, "eager_ms": 0.016, "gbs": 4.0}
  {"op": "matmul_f32_8192", "ms": 43.0, "eager_ms": null}

skipped sdpa_cudnn: no kernel
{"op": "matmul_f32_8192", "ms": 86}
{"op": "mlp_step_f32_96x32", "ms": 0.1}
"#;

fn parse(text: &str) -> Result<Peer, Error> {
    Peer::parse(Path::new("out/torch_ops.jsonl"), text)
}

#[test]
fn reads_rows_machine_and_chatter() {
    let peer = parse(GOOD).unwrap();
    assert_eq!(peer.name(), "torch 2.11.0");
    assert_eq!(peer.machine().gpu.as_deref(), Some("NVIDIA H200"));
    assert_eq!(peer.row("add_f32_1000").unwrap().eager_ms, Some(0.016));
    assert_eq!(peer.row("matmul_f32_8192").unwrap().ms, 43.0, "the faster of two");
    assert_eq!(peer.row("add_f32_10000"), None);
}

#[test]
fn the_machine_may_be_absent() {
    let peer = parse(r#"{"op": "add_f32_1000", "ms": 1}"#).unwrap();
    assert_eq!((peer.name(), peer.machine()), ("torch_ops", &PeerMachine::default()));
    assert_eq!(peer.attach(&mut sample()).unwrap(), 1);
}

#[test]
fn bad_lines_are_named() {
    let row = r#"{"op": "a", "ms": 1}"#;
    for (text, location, cause) in [
        ("\n{\"op\": \"a\", \"ms\": ", "torch_ops.jsonl:2: expected a JSON object", "EOF"),
        (r#"{"op": "a"}"#, "jsonl:1: expected a row", "missing field `ms`"),
        (r#"{"op": "a", "ms": "fast"}"#, "jsonl:1: expected a row", "invalid type: string"),
        (r#"{"ms": 1}"#, "jsonl:1: expected a row", "missing field `op`"),
        (r#"{"op": "a", "ms": -1}"#, "jsonl:1: expected a row", "found `ms` of -1"),
        (r#"{"op": "a", "ms": 0}"#, "jsonl:1: expected a row", "found `ms` of 0"),
        (r#"{"machine": 3}"#, "jsonl:1: expected an object", "invalid type: integer"),
        (&format!("{row}\n{{\"machine\": {{}}}}"), "jsonl:2: expected the machine once", "another"),
        ("no\nrows", "torch_ops.jsonl` has no rows", "expected at least one line"),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(location) && error.contains(cause), "{error}");
    }
    let error = Peer::load("no/such.jsonl").unwrap_err().to_string();
    assert!(error.starts_with("cannot read `no/such.jsonl`"), "{error}");
}

#[test]
fn attaches_by_name_and_kind_of_device() {
    let mut report = sample();
    report.rows.iter_mut().for_each(|row| row.peer = None);
    assert_eq!(parse(GOOD).unwrap().attach(&mut report).unwrap(), 2);
    let matmul = PeerRatio { name: "torch 2.11.0".into(), peer_ms: 43.0, speedup: 2.0 };
    assert_eq!(report.rows[1].peer, Some(matmul));
    assert_eq!(report.rows[2].peer, None, "a CPU row has no ratio against a GPU");

    // Rows of plain calls are compared with plain calls.
    report.rows[1].name = "matmul_eager_f32".into();
    report.rows[1].peer = None;
    let plain = GOOD.lines().next().unwrap().to_owned() + "\n{\"op\": \"matmul_f32\", \"ms\": 1, \"eager_ms\": 86}";
    assert_eq!(parse(&plain).unwrap().attach(&mut report).unwrap(), 1);
    assert_eq!(report.rows[1].peer.as_ref().map(|peer| peer.peer_ms), Some(86.0));
    report.rows[1].name = sample().rows[1].name.clone();

    report.rows[0].name = "no_such_op".into();
    report.rows[0].peer = None;
    assert_eq!(parse(GOOD).unwrap().attach(&mut report).unwrap(), 1);
    assert_eq!(report.rows[0].peer, None);
}

#[test]
fn refuses_another_machine() {
    let mut report = sample();
    report.machine.gpus = vec!["NVIDIA H200 NVL, sm_90".into()];
    assert!(parse(GOOD).unwrap().attach(&mut report).is_err(), "a longer name is another card");
    report.machine.gpus = vec!["NVIDIA A100".into(), "NVIDIA L4".into()];
    let before = report.clone();
    let error = parse(GOOD).unwrap().attach(&mut report).unwrap_err().to_string();
    let expected = "the peer `torch 2.11.0` was measured on `NVIDIA H200` and this report on \
                    `NVIDIA A100`, `NVIDIA L4`; ratios must come from one machine: run the peer \
                    script on this one and pass its new output";
    assert_eq!(error, expected);
    assert_eq!(report, before);

    report.machine.gpus = vec![];
    assert!(parse(GOOD).unwrap().attach(&mut report).is_err());
    report.rows.retain(|row| row.device == "cpu");
    assert_eq!(parse(GOOD).unwrap().attach(&mut report).unwrap(), 0, "nothing to compare");

    let line = r#"{"machine": {"cpu": "Intel Xeon", "device": "cpu"}}"#;
    let on_cpu = parse(&format!("{line}\n{}", r#"{"op": "mlp_step_f32_96x32", "ms": 1}"#)).unwrap();
    assert!(on_cpu.attach(&mut report).is_err());
    report.machine.cpu = Some("Intel Xeon".into());
    assert_eq!(on_cpu.attach(&mut report).unwrap(), 1);
}
