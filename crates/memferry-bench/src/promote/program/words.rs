// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a program is told and must answer, byte for byte. A value follows from its key and how often it was set.

use crate::args::program::Program;

/// Bytes of a value, as of a record of YCSB (Cooper et al., SoCC 2010: ten fields of 100 bytes).
pub const VALUE_BYTES: usize = 1000;

/// What is to be done with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Makes it, with its first value.
    Make,
    /// Asks for its value.
    Get,
    /// Gives it the value of this version.
    Set,
}

/// Appends the value of a key in a version: letters from `a` to `p`.
pub fn value(key: usize, version: u32, to: &mut Vec<u8>) {
    // splitmix64 (Steele, Lea and Flood, OOPSLA 2014), of which four bits of each byte are taken.
    let mut state = (key as u64) << 32 | u64::from(version);
    for _ in 0..VALUE_BYTES / 8 {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let letters = (word & 0x0F0F_0F0F_0F0F_0F0F) + 0x6161_6161_6161_6161;
        to.extend_from_slice(&letters.to_le_bytes());
    }
}

/// What the program is told once, before all requests, and answers nothing to.
pub fn first(program: Program) -> &'static [u8] {
    match program {
        Program::Redis | Program::Memcached => b"",
        Program::Sqlite => b"CREATE TABLE t (k INTEGER PRIMARY KEY, v TEXT);\n",
    }
}

/// Appends a request; `version` is what the key has, or gets.
pub fn request(program: Program, of: Request, key: usize, version: u32, to: &mut Vec<u8>) {
    let (begin, end) = match (program, of) {
        (Program::Redis, Request::Get) => {
            (format!("*2\r\n$3\r\nGET\r\n$12\r\nkey:{key:08}\r\n"), "")
        }
        (Program::Redis, _) => {
            let begin = format!("*3\r\n$3\r\nSET\r\n$12\r\nkey:{key:08}\r\n${VALUE_BYTES}\r\n");
            (begin, "\r\n")
        }
        (Program::Memcached, Request::Get) => (format!("get key:{key:08}\r\n"), ""),
        (Program::Memcached, _) => (format!("set key:{key:08} 0 0 {VALUE_BYTES}\r\n"), "\r\n"),
        (Program::Sqlite, Request::Get) => (format!("SELECT v FROM t WHERE k={key};\n"), ""),
        (Program::Sqlite, Request::Make) => (
            format!("INSERT INTO t VALUES ({key},'"),
            "') RETURNING k;\n",
        ),
        (Program::Sqlite, Request::Set) => {
            to.extend_from_slice(b"UPDATE t SET v='");
            value(key, version, to);
            to.extend_from_slice(format!("' WHERE k={key} RETURNING k;\n").as_bytes());
            return;
        }
    };
    to.extend_from_slice(begin.as_bytes());
    if of != Request::Get {
        value(key, version, to);
    }
    to.extend_from_slice(end.as_bytes());
}

/// Appends what must be answered.
pub fn answer(program: Program, of: Request, key: usize, version: u32, to: &mut Vec<u8>) {
    let (begin, end) = match (program, of) {
        (Program::Redis, Request::Get) => (format!("${VALUE_BYTES}\r\n"), "\r\n"),
        (Program::Redis, _) => ("+OK\r\n".to_owned(), ""),
        (Program::Memcached, Request::Get) => (
            format!("VALUE key:{key:08} 0 {VALUE_BYTES}\r\n"),
            "\r\nEND\r\n",
        ),
        (Program::Memcached, _) => ("STORED\r\n".to_owned(), ""),
        (Program::Sqlite, Request::Get) => (String::new(), "\n"),
        (Program::Sqlite, _) => (format!("{key}\n"), ""),
    };
    to.extend_from_slice(begin.as_bytes());
    if of == Request::Get {
        value(key, version, to);
    }
    to.extend_from_slice(end.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(
        make: fn(Program, Request, usize, u32, &mut Vec<u8>),
        program: Program,
        of: Request,
    ) -> String {
        let (mut got, mut letters) = (Vec::new(), Vec::new());
        make(program, of, 7, 1, &mut got);
        value(7, 1, &mut letters);
        let letters = String::from_utf8(letters).expect("letters");
        String::from_utf8(got)
            .expect("text")
            .replace(&letters, "VALUE")
    }

    #[test]
    fn values_are_of_their_key_and_version() {
        let of = |key, version| {
            let mut to = Vec::new();
            value(key, version, &mut to);
            to
        };
        assert_eq!(of(3, 4), of(3, 4));
        assert_ne!(of(3, 4), of(3, 5));
        assert_ne!(of(3, 4), of(4, 4));
        assert_eq!(of(1, 0).len(), VALUE_BYTES);
        assert!(of(9, 9).iter().all(|byte| (b'a'..=b'p').contains(byte)));
    }

    #[test]
    fn each_program_is_told_and_answers_in_its_own_words() {
        use Program::{Memcached, Redis, Sqlite};
        for (program, of, told, answered) in [
            (
                Redis,
                Request::Get,
                "*2\r\n$3\r\nGET\r\n$12\r\nkey:00000007\r\n",
                "$1000\r\nVALUE\r\n",
            ),
            (
                Redis,
                Request::Set,
                "*3\r\n$3\r\nSET\r\n$12\r\nkey:00000007\r\n$1000\r\nVALUE\r\n",
                "+OK\r\n",
            ),
            (
                Memcached,
                Request::Get,
                "get key:00000007\r\n",
                "VALUE key:00000007 0 1000\r\nVALUE\r\nEND\r\n",
            ),
            (
                Memcached,
                Request::Make,
                "set key:00000007 0 0 1000\r\nVALUE\r\n",
                "STORED\r\n",
            ),
            (
                Sqlite,
                Request::Make,
                "INSERT INTO t VALUES (7,'VALUE') RETURNING k;\n",
                "7\n",
            ),
            (
                Sqlite,
                Request::Set,
                "UPDATE t SET v='VALUE' WHERE k=7 RETURNING k;\n",
                "7\n",
            ),
            (
                Sqlite,
                Request::Get,
                "SELECT v FROM t WHERE k=7;\n",
                "VALUE\n",
            ),
        ] {
            assert_eq!(text(request, program, of), told);
            assert_eq!(text(answer, program, of), answered);
        }
    }
}
