use super::*;

#[test]
fn lines_are_understood() {
    let line = r"43 27 254:0 /run/netns /run/a\040b\134c rw,relatime shared:1 master:2 - ext4 /dev/vda rw,discard";
    let mount = Mount::parse(line).unwrap();
    assert_eq!(mount.target, Path::new(r"/run/a b\c"));
    assert_eq!((mount.kind, mount.options), ("ext4", "rw,discard"));
}

#[test]
fn what_is_no_line_is_none() {
    for line in [
        "",
        "1 2 3",
        " - ",
        "1 2 3 4 - a b c",
        "1 2 0:1 / /x rw - ext4",
    ] {
        assert_eq!(Mount::parse(line), None, "{line}");
    }
    assert_eq!(unescape(r"/a\9b\04"), Path::new(r"/a\9b\04"));
}
