//! Does a path lie on a file system whose locks and shared memory can be trusted?
//!
//! WAL needs memory shared by all who open the file, and locks that hold
//! across them; network and host-shared mounts promise neither
//! (<https://www.sqlite.org/wal.html>, <https://www.sqlite.org/howtocorrupt.html>).

use std::path::Path;

/// Mount types that are refused.
const UNTRUSTED: [&str; 11] = [
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "virtiofs",
    "fuse.sshfs",
    "fuse.glusterfs",
    "ceph",
    "afs",
];

/// The untrusted type that this path lies on, given the text of `/proc/self/mountinfo`.
pub(super) fn untrusted(path: &Path, mountinfo: &str) -> Option<&'static str> {
    let (_, kind) = mountinfo
        .lines()
        .filter_map(parse)
        .filter(|(point, _)| path.starts_with(point))
        // Of two mounts on one point the later hides the earlier.
        .max_by_key(|(point, _)| point.len())?;
    UNTRUSTED.into_iter().find(|refused| *refused == kind)
}

/// The mount point and type of a line: `… root point options … - type source …` (proc(5)).
fn parse(line: &str) -> Option<(String, &str)> {
    let (before, after) = line.split_once(" - ")?;
    let point = before.split(' ').nth(4)?;
    let kind = after.split(' ').next()?;
    // Spaces and backslashes are written as octal escapes.
    let point = point
        .replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\134", "\\");
    Some((point, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
31 22 0:27 / /mnt/share rw - nfs4 server:/x rw
32 22 0:28 / /mnt/my\\040disk rw - 9p host rw
33 31 0:29 / /mnt/share/local rw - xfs /dev/vdb rw
";

    #[test]
    fn the_longest_mount_point_decides() {
        assert_eq!(untrusted(Path::new("/var/db"), MOUNTS), None);
        assert_eq!(untrusted(Path::new("/mnt/share/db"), MOUNTS), Some("nfs4"));
        assert_eq!(untrusted(Path::new("/mnt/share/local/db"), MOUNTS), None);
        assert_eq!(untrusted(Path::new("/mnt/shared"), MOUNTS), None);
        assert_eq!(untrusted(Path::new("/mnt/my disk/db"), MOUNTS), Some("9p"));
    }
}
