//! Cache settings from environment variables, and errors of invalid values.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use bornite_support::cache::CacheSettings;

use crate::Outcome;

crate::tests![folders_take_precedence_in_order, sizes_are_parsed, invalid_values_name_their_variable];

fn read(variables: &[(&str, &str)]) -> bornite_support::Result<CacheSettings> {
    let variables: BTreeMap<&str, OsString> = variables.iter().map(|(name, value)| (*name, value.into())).collect();
    CacheSettings::from_lookup(|name| variables.get(name).cloned())
}

fn folders_take_precedence_in_order() -> Outcome {
    let (home, xdg, own) = (("HOME", "/home/me"), ("XDG_CACHE_HOME", "/var/me"), ("BORNITE_CACHE_DIR", "/fast/me"));
    for (variables, folder) in [
        (&[home, xdg, own][..], Some("/fast/me")),
        (&[home, xdg], Some("/var/me/bornite")),
        (&[home], Some("/home/me/.cache/bornite")),
        (&[home, ("XDG_CACHE_HOME", "relative"), ("BORNITE_CACHE_DIR", "")], Some("/home/me/.cache/bornite")),
        (&[], None),
    ] {
        let settings = read(variables)?;
        assert_eq!(settings.folder.as_deref(), folder.map(Path::new), "{variables:?}");
        assert_eq!((settings.enabled, settings.shared, settings.limit_bytes), (true, None, 2 << 30));
    }
    let settings = read(&[("BORNITE_CACHE", "off"), ("BORNITE_SHARED_CACHE_DIR", "/opt/kernels")])?;
    assert_eq!((settings.enabled, settings.shared), (false, Some(PathBuf::from("/opt/kernels"))));
    // A later change of the working directory must not move the cache.
    let relative = read(&[("BORNITE_CACHE_DIR", "here")])?.folder;
    assert_eq!(relative, Some(std::env::current_dir()?.join("here")));
    Ok(())
}

fn sizes_are_parsed() -> Outcome {
    for (text, bytes) in [
        ("1B", 1),
        ("500 MB", 500 << 20),
        ("2 GiB", 2 << 30),
        ("2G", 2 << 30),
        (" 1.5gib ", 3 << 29),
        ("64k", 65536),
        ("1kB", 1024),
        ("3TB", 3 << 40),
        ("4096", 4096),
        ("1t", 1 << 40),
    ] {
        assert_eq!(read(&[("BORNITE_CACHE_SIZE", text)])?.limit_bytes, bytes, "{text}");
    }
    Ok(())
}

fn invalid_values_name_their_variable() -> Outcome {
    for (variable, value, expected) in [
        ("BORNITE_CACHE", "no", "use 'on' or 'off'"),
        ("BORNITE_CACHE_SIZE", "lots", "such as 512MB"),
        ("BORNITE_CACHE_SIZE", "1.2.3 GB", "more than one decimal point"),
        ("BORNITE_CACHE_SIZE", "-1 GB", "negative"),
        ("BORNITE_CACHE_SIZE", "2 GiBs", "'GiBs' is not a unit"),
        ("BORNITE_CACHE_SIZE", "0 GB", "BORNITE_CACHE=off"),
        ("BORNITE_CACHE_SIZE", "99999999999 TB", "too large"),
    ] {
        let Err(error) = read(&[(variable, value)]) else {
            return Err(format!("{variable}={value} was accepted").into());
        };
        let message = error.to_string();
        assert!(message.starts_with(&format!("{variable}={value}: ")) && message.contains(expected), "{message}");
    }
    Ok(())
}
