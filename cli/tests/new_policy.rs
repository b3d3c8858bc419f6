//! Does `new-policy` write what the tested example is, and never over anything?

mod common;

use common::run;
use std::fs;

#[test]
fn a_new_policy_is_the_documented_example_under_its_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().to_str().expect("UTF-8");
    let made = run(&["new-policy", "my-pool", "--dir", dir]);
    assert_eq!(made.code, 0, "{}", made.err);
    assert!(made.out.contains("pub mod my_pool;"), "{}", made.out);
    let text = fs::read_to_string(folder.path().join("my_pool.rs")).expect("it was written");
    let page = include_str!("../../docs/adding-a-policy.md");
    let (_, shown) = page.split_once("```rust\n").expect("a block of Rust");
    let (shown, _) = shown.split_once("```").expect("its end");
    assert_eq!(text.replace("my-pool", "powers"), shown);

    let again = run(&["new-policy", "my-pool", "--dir", dir]);
    assert_eq!(again.code, 1, "an existing file must stay: {}", again.out);
    assert!(again.err.contains("my_pool.rs"), "{}", again.err);
    for bad in ["Best", "match", "best-fit", "../x"] {
        assert_eq!(run(&["new-policy", bad, "--dir", dir]).code, 2, "{bad}");
    }
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
}
