# The fencepost binary and what it links against; no shell, no package manager.
#
# Dependencies are compiled once: the caches of the registry and of the build
# stay on the machine between builds.

FROM rust:1.95-slim-trixie AS build
WORKDIR /src
COPY . .
ENV CARGO_PROFILE_RELEASE_DEBUG=false CARGO_PROFILE_RELEASE_STRIP=debuginfo CARGO_TERM_COLOR=never
RUN --mount=type=cache,target=/usr/local/cargo/registry,sharing=locked \
    --mount=type=cache,target=/src/target,sharing=locked \
    cargo build --release --locked --package fencepost && cp target/release/fencepost /fencepost

# The root of the image: the program, the libraries that it names (and their
# loader), the certificates that it trusts, who it runs as and where it writes.
RUN set -eu; mkdir -p /root.d/etc/ssl/certs /root.d/bin /root.d/var/lib/fencepost; \
    for library in $(ldd /fencepost | grep -o '/[^ ]*'); do \
        mkdir -p "/root.d$(dirname "$library")"; cp -L "$library" "/root.d$library"; \
    done; \
    mv /fencepost /root.d/bin/fencepost; \
    cp -L /etc/ssl/certs/ca-certificates.crt /root.d/etc/ssl/certs/; \
    echo 'hosts: files dns' >/root.d/etc/nsswitch.conf; \
    echo 'fencepost:x:10001:10001::/var/lib/fencepost:/bin/fencepost' >/root.d/etc/passwd; \
    echo 'fencepost:x:10001:' >/root.d/etc/group; \
    chown 10001:10001 /root.d/var/lib/fencepost

FROM scratch
COPY --from=build /root.d /
USER 10001:10001
ENV FENCEPOST_DATA_DIR=/var/lib/fencepost FENCEPOST_LISTEN=0.0.0.0:8080
VOLUME /var/lib/fencepost
WORKDIR /var/lib/fencepost
EXPOSE 8080
# The program is process 1: it handles its signals and reaps its own children.
ENTRYPOINT ["/bin/fencepost"]
CMD ["up"]
