#!/usr/bin/env bash
# Starts and stops one secured Kafka broker on 127.0.0.1, natively, and creates
# certificates that it trusts. DIR/env has the environment variables for a client
# that is the broker's super user admin.
#
#   PORT       SASL_SSL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, and OAUTHBEARER by tokens that
#              nobody has signed
#   MTLS_PORT  TLS with a client certificate; CN=name is User:name
#
# Other users than admin may do only what ACLs allow. The users for PLAIN are in
# DIR/plain-users, in lines name=password, which may be written before the start; the
# script adds admin with a random password. SCRAM users are created by a client.
#
# usage: kafka-secured.sh start DIR PORT MTLS_PORT [key=value ...]
#        kafka-secured.sh authority DIR     creates DIR/tls with ca.crt and broker.pem, for another broker
#        kafka-secured.sh cert DIR NAME     creates DIR/tls/NAME.crt and NAME.key
#        kafka-secured.sh stop DIR
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

# request FILE NAME creates a key and, in FILE.csr, a request to certify it.
request() {
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$2" \
    -keyout "$1.key" -out "$1.csr" 2>/dev/null
}

# certify TLS NAME creates the certificate of NAME in the folder TLS. It is valid for
# two days, for a client and for a server on loopback.
certify() {
  (
    umask 077
    cd -- "$1"
    request "$2" "$2"
    openssl x509 -req -in "$2.csr" -CA ca.crt -CAkey ca.key -days 2 -out "$2.crt" -set_serial "0x$(openssl rand -hex 8)" \
      -extfile <(echo 'subjectAltName=IP:127.0.0.1,DNS:localhost') 2>/dev/null
    rm "$2.csr"
  )
}

# make_tls TLS creates a certificate authority, and the certificates of broker and
# admin.
make_tls() {
  (umask 077 && mkdir -p -- "$1")
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj '/CN=orderclose test authority' \
    -keyout "$1/ca.key" -out "$1/ca.crt" 2>/dev/null
  certify "$1" broker
  certify "$1" admin
  # The broker needs key and certificate chain in one file.
  cat "$1/broker.key" "$1/broker.crt" "$1/ca.crt" >"$1/broker.pem"
}

# plain_users DIR prints the users for the JAAS line.
plain_users() {
  local line
  while IFS= read -r line; do
    if [[ $line ]]; then printf ' user_%s="%s"' "${line%%=*}" "${line#*=}"; fi
  done <"$1/plain-users"
}

# settings DIR PORT MTLS_PORT CONTROLLER prints the settings that differ from an
# unsecured broker.
settings() {
  local plain=org.apache.kafka.common.security.plain.PlainLoginModule
  local scram=org.apache.kafka.common.security.scram.ScramLoginModule
  local bearer=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule
  printf '%s\n' \
    "listeners=SASL://127.0.0.1:$2,MTLS://127.0.0.1:$3,CONTROLLER://127.0.0.1:$4" \
    "advertised.listeners=SASL://127.0.0.1:$2,MTLS://127.0.0.1:$3" \
    "controller.quorum.voters=1@127.0.0.1:$4" \
    listener.security.protocol.map=SASL:SASL_SSL,MTLS:SSL,CONTROLLER:SSL \
    inter.broker.listener.name=MTLS \
    ssl.keystore.type=PEM "ssl.keystore.location=$1/tls/broker.pem" \
    ssl.truststore.type=PEM "ssl.truststore.location=$1/tls/ca.crt" \
    ssl.client.auth=none \
    listener.name.mtls.ssl.client.auth=required listener.name.controller.ssl.client.auth=required \
    'ssl.principal.mapping.rules=RULE:^CN=([^,]+).*$/$1/,DEFAULT' \
    sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER \
    "listener.name.sasl.plain.sasl.jaas.config=$plain required$(plain_users "$1");" \
    "listener.name.sasl.scram-sha-256.sasl.jaas.config=$scram required;" \
    "listener.name.sasl.scram-sha-512.sasl.jaas.config=$scram required;" \
    "listener.name.sasl.oauthbearer.sasl.jaas.config=$bearer required;" \
    authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer \
    'super.users=User:broker;User:admin'
}

start() {
  local dir port=$2 mtls=$3 controller all password
  dir=$(own_dir "$1")
  shift 3
  command -v openssl >/dev/null || die "no openssl: run deploy/native/install.sh openssl"
  controller=$(free_port)
  while [[ $controller == "$port" || $controller == "$mtls" ]]; do controller=$(free_port); done
  if [[ ! -e $dir/tls/broker.pem ]]; then make_tls "$dir/tls"; fi
  if ! grep -qs '^admin=' "$dir/plain-users"; then
    (umask 077 && echo "admin=$(openssl rand -hex 12)" >>"$dir/plain-users")
  fi
  password=$(sed -n 's/^admin=//p' "$dir/plain-users")
  (
    umask 077
    printf "export %s='%s'\n" ORDERCLOSE_KAFKA_BROKERS "127.0.0.1:$port" \
      ORDERCLOSE_KAFKA_TLS_CA_FILE "$dir/tls/ca.crt" \
      ORDERCLOSE_KAFKA_SASL_MECHANISM PLAIN ORDERCLOSE_KAFKA_SASL_USER admin \
      ORDERCLOSE_KAFKA_SASL_PASSWORD "$password" >"$dir/env"
  )
  # A broker in a container would need all these files mounted.
  export ORDERCLOSE_SERVERS=native
  mapfile -t all < <(settings "$dir" "$port" "$mtls" "$controller")
  (umask 077 && touch "$dir/server.properties") # it contains the passwords
  "$here/kafka.sh" start "$dir" "$port" "${all[@]}" "$@"
}

case ${1:-}:$# in
start:[0-3]) ;;
start:*) start "${@:2}"; exit ;;
authority:2) make_tls "$2/tls"; exit ;;
cert:3) certify "$2/tls" "$3"; exit ;;
stop:2) "$here/kafka.sh" stop "$2"; exit ;;
esac
die "usage: kafka-secured.sh start DIR PORT MTLS_PORT [key=value ...] | authority DIR | cert DIR NAME | stop DIR"
