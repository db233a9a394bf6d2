#!/usr/bin/env bash
# Installs the programs of the native servers and of tests: Debian packages by apt; Kafka's
# jars, RocketMQ's jars, the JDBC drivers, MySQL 8.0 and other releases of PostgreSQL than Debian's by Maven, axe-core by npm, NATS by go install, and the
# current MariaDB and MySQL, and RabbitMQ, from Debian sid, into the user's cache folder (${XDG_CACHE_HOME:-~/.cache}/orderclose). It leaves
# programs that are installed as they are. Packages need root, or sudo without a password. If sid cannot be reached, and with OLD_SERVERS=1, MariaDB is
# the system's and MySQL is 8.0.
#
# usage: install.sh kafka|mariadb|mysql|redis|rabbitmq|postgresql|pgbouncer|nats|rocketmq|jdbc|clients|gcc|openssl|promtool|amtool|chromium|axe|faketime ...
#   kafka      of another version than the usual one, if KAFKA_VERSION names it
#   rabbitmq, nats, rocketmq   servers of make bench-peers only
#   jdbc       the JDBC drivers with which examples/clients/java is tested
#   clients    libraries of Node and Python for examples/clients
#   gcc        for go test -race
#   chromium   a browser, and a font with Chinese characters
#   axe        axe-core, the rules of accessibility
#   faketime   libfaketime, which sets the clock of one program off
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

has() { command -v "$1" >/dev/null; }

has_gcc() { has gcc && echo '#include <stdlib.h>' | gcc -E -x c - >/dev/null 2>&1; }

has_chromium() { has chromium || has chromium-browser || has google-chrome; }

has_chinese() { has fc-list && [[ $(fc-list :lang=zh-cn family) ]]; }

has_faketime() { compgen -G '/usr/lib/*/faketime/libfaketimeMT.so.1' >/dev/null; }

has_library() { ldconfig -p | grep -c -- "$1 " >/dev/null; }

# aio_package prints Debian's package name for libaio, which differs between
# releases.
aio_package() {
  if apt-cache show libaio1t64 >/dev/null 2>&1; then echo libaio1t64; else echo libaio1; fi
}

# missing_packages NAME... prints the Debian packages that NAMEs still need.
missing_packages() {
  local name
  for name in "$@"; do
    case $name in
    kafka)
      has java || echo default-jre-headless
      has_jars || has mvn || echo maven
      ;;
    mariadb)
      has_current mariadb || has mariadbd || echo mariadb-server-core
      has_current mariadb || has my_print_defaults || echo mariadb-client-core # mariadb-install-db calls it
      ;;
    mysql)
      if has_current mysql; then continue; fi
      has_mysql || has mvn || echo maven
      has_mysql || has unzip || echo unzip
      has_library libnuma.so.1 || echo libnuma1
      has_library libaio.so.1 || has_library libaio.so.1t64 || aio_package
      ;;
    redis) has redis-server || echo redis-server ;;
    postgresql)
      if [[ ! ${POSTGRESQL_VERSION:-} ]]; then
        postgresql_programs >/dev/null || echo postgresql
      elif ! has_postgresql; then
        has mvn || echo maven
        has unzip || echo unzip
        has xz || echo xz-utils
      fi
      ;;
    pgbouncer) has pgbouncer || echo pgbouncer ;;
    nats | rabbitmq) ;; # Debian's versions are older
    rocketmq)
      has java || echo default-jre-headless
      has_rocketmq || has mvn || echo maven
      ;;
    jdbc) has_jdbc || has mvn || echo maven ;;
    clients)
      has_clients || has npm || echo npm
      has_clients || python3 -c 'import ensurepip' 2>/dev/null || echo python3-venv
      ;;
    gcc) has_gcc || printf '%s\n' gcc libc6-dev ;;
    openssl) has openssl || echo openssl ;;
    # The packages have the servers too, which tests start; no service is started.
    promtool) { has promtool && has prometheus; } || echo prometheus ;;
    amtool) { has amtool && { has prometheus-alertmanager || has alertmanager; }; } || echo prometheus-alertmanager ;;
    chromium)
      has_chromium || echo chromium
      has_chinese || printf '%s\n' fontconfig fonts-wqy-microhei
      ;;
    axe) has_axe || has npm || echo npm ;;
    faketime) has_faketime || echo libfaketime ;;
    *) die "unknown server or tool '$name': kafka, mariadb, mysql, redis, rabbitmq, postgresql, pgbouncer, nats, rocketmq, jdbc, clients, gcc, openssl, promtool, amtool, chromium, axe or faketime" ;;
    esac
  done
}

# as_root COMMAND... runs COMMAND as root, by sudo without a password if necessary.
as_root() {
  if ((EUID == 0)); then "$@"; else sudo -n "$@"; fi
}

policy=/usr/sbin/policy-rc.d
policy_mark='orderclose: no service is started while packages are installed'

# hold_services keeps packages from starting their services. It moves an existing
# policy aside, but not a policy that a killed run of this script has left.
hold_services() {
  if [[ -e $policy ]] && ! grep -q "$policy_mark" "$policy"; then
    as_root mv "$policy" "$policy.before-orderclose"
  fi
  printf '#!/bin/sh\n# %s\nexit 101\n' "$policy_mark" | as_root tee "$policy" >/dev/null
  as_root chmod 755 "$policy"
}

release_services() {
  as_root rm -f "$policy"
  if [[ -e $policy.before-orderclose ]]; then
    as_root mv "$policy.before-orderclose" "$policy"
  fi
}

install_packages() {
  local by_hand="please install: $* (and call this again)"
  has apt-get || die "no apt-get here; $by_hand"
  ((EUID == 0)) || sudo -n true 2>/dev/null || die "neither root nor sudo without a password; $by_hand"

  note "installing $*"
  trap release_services EXIT
  hold_services
  local apt=(as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
  "${apt[@]}" update >&2
  "${apt[@]}" install -y --no-install-recommends "$@" >&2
  release_services
  trap - EXIT
  # They must not start at the next boot either.
  local service
  for service in redis-server postgresql pgbouncer prometheus prometheus-alertmanager; do
    if [[ " $* " == *" $service "* ]] && has systemctl; then
      as_root systemctl disable "$service" >&2 || true
    fi
  done
}

# jars_have FOLDER SUM checks all files of a folder, by the checksum of the list of their checksums. Maven and npm check only against what the registry says.
jars_have() {
  [[ $(cd "$1" && LC_ALL=C sha256sum -- * | sha256sum) == "$2  -" ]] || die "the files in $1 have the wrong checksum"
}

# Checksums of Kafka's jars, by version.
declare -A kafka_sums=(
  [3.3.2]=552d0661bd850ac61c5cd83a641103292eb576be5d7ebc8da8709f13931796f9
  [3.9.2]=aea7a5c231fa124b118209d52b9fe968e420e08f7e1f7bfec392f8c1de62b951
  [4.0.2]=e4e45e505baee7c2f053a2a4c9e5d8e78b46d2d90475c68f63c1c4a1bc2a9f5c
  [4.1.0]=defd8523665b9074bf5486e51fe91862ce7d7b704147ee109ec8d845548c7da9
  [4.1.2]=a7a80a30421a5b0e302a2353f5d1d41867a5602ccfbd90b207aa3a8c1dc9b636
  [4.4.0]=98b52a7fc606912291aaa0d2a2b8563c1bb4f6a732ad5a4ba94bffc300884b95
)

# The folder is renamed when it is complete, so an existing folder is complete.
has_jars() { [[ -d $(kafka_home)/libs ]]; }

install_jars() {
  local home part
  home=$(kafka_home)
  part=$home.part # only this run uses it, because it holds the lock; a killed run may have left one
  rm -rf -- "$part"
  mkdir "$part"
  note "fetching Kafka's jars into $home"
  cp "$here/kafka-pom.xml" "$part/pom.xml"
  mvn -q -B -C -f "$part/pom.xml" "-Dkafka.version=$(kafka_version)" dependency:copy-dependencies "-DoutputDirectory=$part/libs" >&2 ||
    die "Maven could not fetch the jars of Kafka $(kafka_version)"
  if [[ ${kafka_sums[$(kafka_version)]-} ]]; then
    jars_have "$part/libs" "${kafka_sums[$(kafka_version)]}"
  else
    note "install.sh has no checksum of the jars of Kafka $(kafka_version): Maven has checked them against the repository's own"
  fi
  rm "$part/pom.xml"
  mv -T "$part" "$home"
}

has_mysql() { [[ -x $(mysql_home)/bin/mysqld ]]; }


# install_current NAME gets the current MariaDB or MySQL. It fails if Debian sid cannot be reached, or if what it has today does not run.
install_current() {
  local home part program=sbin/mariadbd
  home=$(current_home "$1")
  part=$home.part
  note "fetching the current $1 from Debian sid into $home"
  case $1 in
  mariadb) from_sid "$part" mariadb-server mariadb-server-core mariadb-client-core || return ;;
  mysql)
    from_sid "$part" mysql-server-core || return
    program=bin/mysqld # as in MySQL's own archives
    mv "$part/sbin/mysqld" "$part/bin" && mv "$part/share/mysql"/* "$part/share" || return
    ;;
  esac
  set_loader "$home" "$part" "$part"/bin/* "$part"/sbin/*
  mv -T "$part" "$home"
  "$home/$program" --version >/dev/null || { rm -rf -- "$home" && return 1; }
}

# from_sid DIR PACKAGE... unpacks packages of Debian sid, and all the libraries that they need, into DIR. It fails if sid cannot be reached.
from_sid() {
  local part=$1 apt package libraries
  has apt-get && has dpkg-deb || return
  rm -rf -- "$part"
  mkdir -p "$part/apt/lists/partial"
  (
    cd "$part/apt" || exit
    # The signature is checked; the date is not, because a mirror may be weeks old.
    echo 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg check-valid-until=no] http://deb.debian.org/debian sid main' >sources.list
    apt=(-q -o "Dir::Etc::SourceList=$PWD/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$PWD/lists"
      -o "Dir::Cache=$PWD" -o "APT::Sandbox::User=$(id -un)" -o APT::Update::Error-Mode=any -o Acquire::Retries=1 -o Acquire::http::Timeout=20)
    set -- "${@:2}" patchelf
    apt-get "${apt[@]}" update >&2 || exit
    libraries=$(apt-cache "${apt[@]}" depends --recurse --no-{recommends,suggests,conflicts,breaks,replaces,enhances} "${@%%=*}" | grep '^lib' | grep -v '^libperl' | sort -u)
    # shellcheck disable=SC2086 # each is a single word
    apt-get "${apt[@]}" download "$@" $libraries >&2 || exit
    for package in *.deb; do dpkg-deb -x "$package" . || exit; done
    mv usr/* .. && cd .. && rm -r apt && mv bin/patchelf .
  )
}

# set_loader HOME PART PROGRAM... gives programs of sid the loader and the path of the libraries in HOME, as which PART will be renamed. So nothing of the
# system changes.
set_loader() {
  local home=$1 part=$2 program loader patch
  loader=$(cd "$part" && echo lib/*-linux-gnu/ld-linux-*)
  patch=("$part/$loader" --library-path "$part/${loader%/*}" "$part/patchelf" --set-interpreter "$home/$loader" --force-rpath --set-rpath "$home/${loader%/*}")
  for program in "${@:3}"; do
    if [[ -f $program && ! -L $program && $(head -c 4 "$program" | tr -d '\0') == $'\x7fELF' ]]; then
      "${patch[@]}" "$program"
    fi
  done
}

# Checksum of the file that Maven fetches. Maven checks only against the repository's
# own checksums.
mysql_sha256=a893e37643da168bab27c56878bede403d938ead1fc08b74bf85dad66be1f414

install_mysql() {
  local home part jar
  [[ $(uname -sm) == 'Linux x86_64' ]] ||
    die "there is no MySQL package for $(uname -sm): name a server in ORDERCLOSE_MYSQL_DSN, or use containers"
  home=$(mysql_home)
  part=$home.part
  rm -rf -- "$part"
  mkdir "$part"
  note "fetching MySQL into $home"
  cp "$here/mysql-pom.xml" "$part/pom.xml"
  mvn -q -B -C -f "$part/pom.xml" dependency:copy-dependencies "-DoutputDirectory=$part/jar" >&2 ||
    die "Maven could not fetch MySQL"
  jar=$(echo "$part"/jar/*.jar)
  sha256sum --check --quiet <<<"$mysql_sha256  $jar" >&2 || die "$jar has the wrong checksum"
  unzip -p "$jar" mysql-Linux-amd64.tar.gz | tar -xz -C "$part"
  rm -r "$part/jar" "$part/pom.xml"
  mv -T "$part" "$home"
}

has_postgresql() {
  local home
  home=$(postgresql_home) || exit
  [[ -x $home/bin/postgres ]]
}

install_postgresql() {
  local home part jar release sum
  [[ $(uname -sm) == 'Linux x86_64' ]] || die "there is no PostgreSQL $POSTGRESQL_VERSION for $(uname -sm) in Maven"
  read -r release sum <<<"${postgresql_releases[$POSTGRESQL_VERSION]}"
  home=$(postgresql_home)
  part=$home.part
  rm -rf -- "$part"
  mkdir -p "$part"
  note "fetching PostgreSQL $release into $home"
  cp "$here/postgresql-pom.xml" "$part/pom.xml"
  mvn -q -B -C -f "$part/pom.xml" "-Drelease=$release" dependency:copy-dependencies "-DoutputDirectory=$part/jar" >&2 ||
    die "Maven could not fetch PostgreSQL"
  jar=$(echo "$part"/jar/*.jar)
  sha256sum --check --quiet <<<"$sum  $jar" >&2 || die "$jar has the wrong checksum"
  unzip -p "$jar" postgres-linux-x86_64.txz | tar -xJ --no-same-owner -C "$part"
  rm -r "$part/jar" "$part/pom.xml"
  mv -T "$part" "$home"
}

has_rabbitmq() { [[ -d $(rabbitmq_home) ]]; }

install_rabbitmq() {
  local home part
  home=$(rabbitmq_home)
  part=$home.part
  note "fetching RabbitMQ and Erlang from Debian sid into $home"
  from_sid "$part" "rabbitmq-server=${home##*-}-1" \
    erlang-{base,asn1,crypto,eldap,eunit,inets,mnesia,os-mon,parsetools,public-key,runtime-tools,ssl,syntax-tools,tools,xmerl} ||
    die "Debian sid, or its RabbitMQ ${home##*-}, cannot be fetched"
  sed -i "s|=/usr/lib/erlang|=$home/lib/erlang|" "$part"/lib/erlang/{,erts-*/}bin/erl
  set_loader "$home" "$part" "$part"/lib/erlang/erts-*/bin/* "$part"/lib/erlang/lib/os_mon-*/priv/bin/*
  mv -T "$part" "$home"
}

has_rocketmq() { [[ -d $(rocketmq_home)/libs ]]; }

install_rocketmq() {
  local home part
  home=$(rocketmq_home)
  part=$home.part
  rm -rf -- "$part"
  mkdir "$part"
  note "fetching RocketMQ's jars into $home"
  cp "$here/rocketmq-pom.xml" "$part/pom.xml"
  mvn -q -B -C -f "$part/pom.xml" dependency:copy-dependencies -DincludeScope=runtime "-DoutputDirectory=$part/libs" >&2 ||
    die "Maven could not fetch RocketMQ's jars"
  jars_have "$part/libs" 13371e2c629731e9b6fda207646f555af3500f8b44d41bb187c257b937d837ee
  rm "$part/pom.xml"
  mv -T "$part" "$home"
}

has_jdbc() { [[ -d $(jdbc_home) ]]; }

install_jdbc() {
  local home part
  home=$(jdbc_home)
  part=$home.part
  rm -rf -- "$part"
  mkdir -p "$part"
  note "fetching the JDBC drivers into $home"
  mvn -q -B -C -f "$here/jdbc-pom.xml" dependency:copy-dependencies -DincludeScope=runtime "-DoutputDirectory=$part" >&2 ||
    die "Maven could not fetch the JDBC drivers"
  jars_have "$part" 426b10e2e8bd0058c494ed2b431f3051ac57a4c68f0431284e6049d42047bc6c
  mv -T "$part" "$home"
}

has_clients() { [[ -d $(clients_home) ]]; }

install_clients() {
  local home
  home=$(clients_home)
  note "fetching libraries for clients in Node and Python into $home"
  rm -rf -- "$home.part"
  mkdir "$home.part"
  cp "$here/clients"/package*.json "$home.part"
  npm ci --silent --ignore-scripts --no-audit --no-fund --prefix "$home.part" >&2 || die "npm could not fetch kafkajs and mysql2"
  python3 -m venv "$home.part" && "$home.part/bin/python3" -m pip install -q --only-binary :all: --require-hashes -r "$here/clients/requirements.txt" >&2 ||
    die "pip could not fetch confluent-kafka and PyMySQL"
  mv -T "$home.part" "$home"
}

has_nats() { [[ -x $(nats_home)/nats-server ]]; }

install_nats() {
  local home
  home=$(nats_home)
  note "building NATS in $home"
  GOBIN=$home.part go install "github.com/nats-io/nats-server/v2@v${home##*-}" >&2 || die "go install could not build nats-server"
  rm -rf -- "$home"
  mv -T "$home.part" "$home"
}

has_axe() { [[ -e $(axe_home)/axe.min.js ]]; }

# Checksum of the archive that npm fetches. npm checks only against what the registry says.
axe_sha256=e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745

install_axe() {
  local home part archive
  home=$(axe_home)
  part=$home.part
  rm -rf -- "$part"
  mkdir "$part"
  note "fetching axe-core into $home"
  npm pack --silent --ignore-scripts --pack-destination "$part" "axe-core@${home##*-}" >/dev/null ||
    die "npm could not fetch axe-core"
  archive=$(echo "$part"/*.tgz)
  sha256sum --check --quiet <<<"$axe_sha256  $archive" >&2 || die "$archive has the wrong checksum"
  tar -xzf "$archive" -C "$part" --strip-components=1 package/axe.min.js package/LICENSE
  rm "$archive"
  mv -T "$part" "$home"
}

# link_libaio links libaio to the name that mysqld asks for.
link_libaio() {
  local lib
  lib=$(mysql_home)/lib
  mkdir -p "$lib"
  ln -sf "$(ldconfig -p | sed -n 's/.*libaio\.so\.1t64 .*=> //p' | head -n 1)" "$lib/libaio.so.1"
}

trap 'exit 1' INT TERM HUP # so that EXIT traps run
mkdir -p "$(dirname "$(kafka_home)")"
exec 9>"$(dirname "$(kafka_home)")/install.lock"
flock 9 # of two concurrent runs the second finds everything done

for name in mariadb mysql; do
  if [[ " $* " == *" $name "* && ! ${OLD_SERVERS-} ]] && ! has_current "$name"; then
    install_current "$name" || note "Debian sid has no $name that can be used here: it is an older release, not the current one"
  fi
done
packages=$(missing_packages "$@")
if [[ $packages ]]; then
  # shellcheck disable=SC2086 # each is a single word
  install_packages $packages
fi
if [[ " $* " == *' kafka '* ]] && ! has_jars; then
  install_jars
fi
if [[ " $* " == *' mysql '* ]]; then
  if ! has_mysql; then install_mysql; fi
  if ! has_current mysql && ! has_library libaio.so.1; then link_libaio; fi
fi
use_mariadb
if [[ " $* " == *' mariadb '* ]]; then note "$(mariadbd --version)"; fi
if [[ " $* " == *' mysql '* ]]; then note "$("$(mysql_home)/bin/mysqld" --version)"; fi
if [[ " $* " == *' postgresql '* && ${POSTGRESQL_VERSION:-} ]] && ! has_postgresql; then
  install_postgresql
fi
if [[ " $* " == *' rabbitmq '* ]] && ! has_rabbitmq; then
  install_rabbitmq
fi
if [[ " $* " == *' rocketmq '* ]] && ! has_rocketmq; then
  install_rocketmq
fi
if [[ " $* " == *' jdbc '* ]] && ! has_jdbc; then
  install_jdbc
fi
if [[ " $* " == *' clients '* ]] && ! has_clients; then
  install_clients
fi
if [[ " $* " == *' nats '* ]] && ! has_nats; then
  install_nats
fi
if [[ " $* " == *' axe '* ]] && ! has_axe; then
  install_axe
fi
