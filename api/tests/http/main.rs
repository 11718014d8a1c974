//! The API over HTTP: the real server on a port, the real store in a file.
