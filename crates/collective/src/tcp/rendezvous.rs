//! The file by which ranks find rank 0 and learn the token of their job.
//!
//! Rank 0 writes it, readable by its user only, and removes it once all ranks are connected. The
//! file of a job that died names a port where nobody knows the token: readers try again until the
//! new one is there.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use bornite_support::files::write_private_file;

use super::handshake::Token;
use crate::{Error, Result};

const FIRST_LINE: &str = "bornite rendezvous 1";
const MAX_FILE_BYTES: u64 = 4096;

/// Address of rank 0 and the secret of its job.
#[derive(Clone)]
pub(super) struct Rendezvous {
    /// Identity of the job; ranks of another job ignore the file.
    pub job: String,
    /// Host name or address.
    pub host: String,
    pub port: u16,
    pub token: Token,
}

/// Removes the file when it is dropped.
pub(super) struct RendezvousFile(PathBuf);

impl Drop for RendezvousFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Rendezvous {
    pub fn write(&self, path: &Path) -> Result<RendezvousFile> {
        let Rendezvous { job, host, port, token } = self;
        let text = format!("{FIRST_LINE}\njob {job}\nhost {host}\nport {port}\ntoken {}\n", token.hex());
        let (folder, name) = (path.parent().unwrap_or(Path::new("")), path.file_name().unwrap_or_default());
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let written = fs::create_dir_all(folder)
            .and_then(|()| write_private_file(folder, &name.to_string_lossy(), &[text.as_bytes()]));
        match written {
            Ok(()) => Ok(RendezvousFile(path.into())),
            Err(error) => Err(Error::Rendezvous(format!(
                "rank 0 cannot write {}, by which other ranks find it: {error}",
                path.display()
            ))),
        }
    }

    /// Reads the file of a job; the error says why it is of no use.
    pub fn read(path: &Path, job: &str) -> std::result::Result<Rendezvous, String> {
        let shown = path.display();
        let text = read_limited(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => format!("rank 0 has not written {shown}"),
            _ => format!("{shown} cannot be read: {error}"),
        })?;
        let found = Rendezvous::parse(&text).ok_or_else(|| format!("{shown} is not a file of this version"))?;
        match found.job == job {
            true => Ok(found),
            false => Err(format!("{shown} belongs to job '{}'; this is job '{job}'", found.job)),
        }
    }

    fn parse(text: &str) -> Option<Rendezvous> {
        let mut lines = text.lines();
        let first = lines.next()?;
        let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let (job, host) = (value("job")?.to_string(), value("host")?.to_string());
        let (port, token) = (value("port")?.parse().ok()?, Token::from_hex(value("token")?)?);
        (first == FIRST_LINE).then_some(Rendezvous { job, host, port, token })
    }
}

fn read_limited(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_private_and_read_back() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("bornite-rendezvous-{}/file", std::process::id()));
        let token = Token::random().unwrap();
        let own = Rendezvous { job: "a b".into(), host: "::1".into(), port: 4711, token: token.clone() };
        let file = own.write(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let found = Rendezvous::read(&path, "a b").unwrap();
        assert!((found.host, found.port) == ("::1".into(), 4711) && found.token == token);
        assert!(Rendezvous::read(&path, "a").err().unwrap().contains("belongs to job 'a b'"));
        let text = fs::read_to_string(&path).unwrap();
        for len in 0..text.len() - 1 {
            fs::write(&path, &text[..len]).unwrap();
            assert!(Rendezvous::read(&path, "a b").is_err(), "{len} bytes");
        }
        fs::write(&path, [0xff; 5000]).unwrap();
        assert!(Rendezvous::read(&path, "a b").is_err());
        drop(file);
        assert!(Rendezvous::read(&path, "a b").err().unwrap().contains("has not written"));
        fs::remove_dir(path.parent().unwrap()).unwrap();
    }
}
