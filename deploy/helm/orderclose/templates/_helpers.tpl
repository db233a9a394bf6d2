{{/* The name of the release's objects. A release whose name contains orderclose is not prefixed. */}}
{{- define "orderclose.name" -}}
{{- $name := .Values.nameOverride | default "orderclose" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" (.Release.Name | trunc (sub 39 (len $name) | int) | trimSuffix "-") $name -}}
{{- end -}}
{{- end }}

{{/* The labels of the pods of a release. They never change, because Deployments select by them. */}}
{{- define "orderclose.selector" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default "orderclose" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The labels of all other objects of a release. */}}
{{- define "orderclose.labels" -}}
{{ include "orderclose.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* The servers that each part uses. It decides which Secrets a pod gets and which ports it may reach. With brokers, the webhook tells
     status and console of itself. */}}
{{- define "orderclose.servers" -}}
relay: [kafka]
closer: [kafka, database, services]
compensator: [kafka, database, redis, services]
outbox: [kafka, database]
sweeper: [database, services]
payments: [database, services, payments]
console: [kafka, database, redis, services]
migrate: [database]
topics: [kafka]
webhook: {{ ternary "[kafka, database, services]" "[database, services]" (ne (.Values.env.ORDERCLOSE_KAFKA_BROKERS | default "") "") }}
{{- end }}

{{/* The kind of the object that has the pods of a part. Parts that join consumer groups may be StatefulSets. */}}
{{- define "orderclose.kind" -}}
{{- ternary "StatefulSet" "Deployment" (and .root.Values.statefulSets (has .part (list "relay" "closer"))) -}}
{{- end }}

{{/* The data of the ConfigMap with the environment. */}}
{{- define "orderclose.env" -}}
{{- $secret := list "ORDERCLOSE_DB_DSN" "ORDERCLOSE_REDIS_URL" "ORDERCLOSE_KAFKA_SASL_PASSWORD" "ORDERCLOSE_HTTP_SECRET" "ORDERCLOSE_PAYMENT_SECRET" "ORDERCLOSE_WEBHOOK_SECRET" }}
{{- range $name := $secret }}
{{- if hasKey $.Values.env $name }}
{{- fail (printf "env.%s is a secret, and everybody who may read ConfigMaps would see it: write it into a key of a Secret that secrets names, and the key's file into env.%s_FILE, such as /run/secrets/SERVER/KEY; docs/kubernetes.md lists both" $name $name) }}
{{- end }}
{{- end }}
{{- range $name := list "AWS_SECRET_ACCESS_KEY" "AWS_SESSION_TOKEN" }}
{{- if hasKey $.Values.env $name }}
{{- fail (printf "env.%s is a secret, and everybody who may read ConfigMaps would see it: annotate the service account with a role of AWS by serviceAccount.annotations" $name) }}
{{- end }}
{{- end }}
ORDERCLOSE_LISTEN: 0.0.0.0:9464
{{- if not .Values.env.ORDERCLOSE_KAFKA_BROKERS }}
{{- range $part, $of := merge (dict) .Values.roles .Values.jobs }}
{{- if and $of.enabled (has "kafka" (get (include "orderclose.servers" $ | fromYaml) $part)) (ne $part "console") }}
{{- fail (printf "env.ORDERCLOSE_KAFKA_BROKERS is not set, and %s needs Kafka: set it to the brokers, such as kafka-1:9092,kafka-2:9092; for sweeps with a database alone, install with -f deploy/helm/orderclose/sweeper.yaml" $part) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $name, $value := .Values.env }}
{{- if ne (toString $value) "" }}
{{ $name }}: {{ $value | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* Not empty if sweepers close the orders with a database alone. */}}
{{- define "orderclose.sweepsAlone" -}}
{{- with .Values.roles }}{{ if and .sweeper.enabled (not (or .relay.enabled .closer.enabled .compensator.enabled)) }}yes{{ end }}{{ end -}}
{{- end }}

{{/* The name of the pods' ServiceAccount. */}}
{{- define "orderclose.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "orderclose.name" .) "default" .Values.serviceAccount.create) -}}
{{- end }}

{{/* Not empty if more than kubectl port-forward reaches the console: its own proxy, or one of the user. */}}
{{- define "orderclose.consoleReached" -}}
{{- with .Values.console }}{{ if or .proxy.enabled (not (hasPrefix "127." (.env.ORDERCLOSE_CONSOLE_LISTEN | default "127.0.0.1:9465"))) }}yes{{ end }}{{ end -}}
{{- end }}

{{/* The data of the ConfigMap with the environment of the console. */}}
{{- define "orderclose.console" -}}
{{- $proxy := .Values.console.proxy -}}
{{- $ingress := .Values.console.ingress -}}
{{- $env := omit .Values.console.env "ORDERCLOSE_CONSOLE_HOSTS" -}}
{{- $hosts := .Values.console.env.ORDERCLOSE_CONSOLE_HOSTS | default (ternary $ingress.host "" $ingress.enabled) -}}
{{- $loopback := hasPrefix "127." ($env.ORDERCLOSE_CONSOLE_LISTEN | default "127.0.0.1:9465") -}}
{{- if $proxy.enabled }}
{{- if not $loopback }}
{{- fail "console.proxy is enabled, and reaches the console on the loopback only: leave console.env.ORDERCLOSE_CONSOLE_LISTEN at 127.0.0.1:9465" }}
{{- end }}
{{- if not $proxy.args }}
{{- fail "console.proxy is enabled, and console.proxy.args is empty: name your identity provider and who may sign in, such as [--provider=oidc, --oidc-issuer-url=https://id.example, --email-domain=shop.example]" }}
{{- end }}
{{- $env = merge (dict) $env (dict "ORDERCLOSE_CONSOLE_PROXIES" "127.0.0.1" "ORDERCLOSE_CONSOLE_USER_HEADER" "X-Forwarded-Email") }}
{{- else if and $loopback $ingress.enabled }}
{{- fail "console.ingress is enabled, and nothing signs users in: enable console.proxy, or set ORDERCLOSE_CONSOLE_LISTEN, ORDERCLOSE_CONSOLE_PROXIES and ORDERCLOSE_CONSOLE_USER_HEADER in console.env for a proxy of your own" }}
{{- else if not (or $loopback (and $env.ORDERCLOSE_CONSOLE_PROXIES $env.ORDERCLOSE_CONSOLE_USER_HEADER)) }}
{{- fail "roles.console is enabled, and everybody who reaches its pod could open it: set console.env.ORDERCLOSE_CONSOLE_PROXIES to the addresses of your proxy, and console.env.ORDERCLOSE_CONSOLE_USER_HEADER to the header in which it names the user, or leave console.env.ORDERCLOSE_CONSOLE_LISTEN at 127.0.0.1:9465 for kubectl port-forward" }}
{{- end }}
{{- if and (include "orderclose.consoleReached" .) (not $hosts) }}
{{- fail "roles.console is enabled, and console.env.ORDERCLOSE_CONSOLE_HOSTS is not set: set it, or console.ingress.host, to the name in the browser's address, such as console.example" }}
{{- end }}
{{- with $hosts }}{{ $_ := set $env "ORDERCLOSE_CONSOLE_HOSTS" . }}{{ end }}
{{- toYaml $env }}
{{- end }}

{{/* GOMEMLIMIT in bytes: 90 % of the limit of memory, so that Go collects garbage before the pod is killed. */}}
{{- define "orderclose.memory" -}}
{{- $limit := dig "limits" "memory" "" . | toString -}}
{{- $factors := dict "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "k" 1000 "M" 1000000 "G" 1000000000 -}}
{{- if regexMatch "^[0-9]+([KMG]i|[kMG])$" $limit -}}
{{- div (mul (regexFind "^[0-9]+" $limit) (get $factors (regexFind "[A-Za-z]+$" $limit)) 9) 10 -}}
{{- end -}}
{{- end }}

{{/*
The template of a pod. The dict has root, part (its component), args, of (the values of the part), and
for a Job restartPolicy. A pod of a Deployment is restarted if its environment changes, and not if topics.yaml
does, which the parts read again. payments has payments.yaml in its place, and does not read it again.
*/}}
{{- define "orderclose.pod" -}}
{{- $root := .root -}}
{{- $stateful := eq (include "orderclose.kind" .) "StatefulSet" -}}
{{- $pod := $root.Values.pod -}}
{{- $config := dict "name" "topics" "flag" "--config=/etc/orderclose/topics.yaml" "read" "" -}}
{{- if eq .part "payments" -}}
{{- $config = dict "name" "payments" "flag" "--config=/etc/orderclose/payments.yaml" "read" (toYaml $root.Values.payments) -}}
{{- else if eq .part "console" -}}
{{- $_ := set $config "read" (include "orderclose.console" $root) -}}
{{- end -}}
{{- $secrets := merge (dict) .of.secrets $root.Values.secrets -}}
{{- $servers := get (include "orderclose.servers" $root | fromYaml) .part -}}
{{- range $key, $why := dict "containers" "the chart has the one container; set container" "restartPolicy" "it follows from Deployment and Job" "serviceAccountName" "set serviceAccount.name" "serviceAccount" "set serviceAccount.name" -}}
{{- if hasKey $pod $key }}{{ fail (printf "pod.%s cannot be set: %s" $key $why) }}{{ end -}}
{{- end -}}
{{- range $pod.volumes -}}
{{- if has .name (append $servers "config") }}{{ fail (printf "pod.volumes: the chart has a volume %s itself: choose another name" .name) }}{{ end -}}
{{- end -}}
{{- range $key, $_ := $root.Values.podLabels -}}
{{- if has $key (list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component") }}{{ fail (printf "podLabels.%s cannot be set: Deployments and network policies select pods by it" $key) }}{{ end -}}
{{- end -}}
metadata:
  labels:
    {{- include "orderclose.selector" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .part }}
    {{- with $root.Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    checksum/env: {{ print (include "orderclose.env" $root) $config.read | sha256sum | trunc 16 | quote }}
    {{- with merge (dict) (.of.podAnnotations | default dict) $root.Values.podAnnotations }}
    {{- toYaml (omit . "checksum/env") | nindent 4 }}
    {{- end }}
spec:
  {{- toYaml (omit $pod "volumes") | nindent 2 }}
  serviceAccountName: {{ include "orderclose.serviceAccount" $root }}
  {{- if .restartPolicy }}
  restartPolicy: {{ .restartPolicy }}
  {{- end }}
  containers:
    - name: {{ .part }}
      image: {{ printf "%s:%s" $root.Values.image.repository ($root.Values.image.tag | default $root.Chart.AppVersion) | quote }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      {{- if eq .part "payments" }}
      command: [orderclose-payments]
      {{- end }}
      args: {{ toJson (append .args $config.flag) }}
      envFrom:
        - configMapRef: {name: {{ include "orderclose.name" $root }}-env}
        {{- if eq .part "console" }}
        - configMapRef: {name: {{ include "orderclose.name" $root }}-console}
        {{- end }}
      {{- $memory := include "orderclose.memory" .of.resources }}
      {{- $limited := and $memory (not $root.Values.env.GOMEMLIMIT) }}
      {{- if or $limited $stateful }}
      env:
        {{- if $limited }}
        # 90 % of the limit of memory below.
        - {name: GOMEMLIMIT, value: {{ $memory | quote }}}
        {{- end }}
        {{- if $stateful }}
        # A container that is started again in this pod gets its partitions back at once.
        - {name: ORDERCLOSE_INSTANCE, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        {{- end }}
      {{- end }}
      {{- toYaml (omit $root.Values.container "volumeMounts") | nindent 6 }}
      resources: {{- toYaml .of.resources | nindent 8 }}
      {{- if not .restartPolicy }}
      ports:
        - {name: metrics, containerPort: 9464}
        {{- if eq .part "console" }}
        - {name: console, containerPort: 9465}
        {{- end }}
      # Whether the process answers. It answers while servers are down.
      livenessProbe:
        httpGet: {path: /-/healthy, port: metrics}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 3
      # Whether it waits for nothing: servers, schema and topics are there.
      readinessProbe:
        httpGet: {path: /-/ready, port: metrics}
        periodSeconds: 5
        timeoutSeconds: 5
      {{- end }}
      volumeMounts:
        # A folder, not a subPath: so the file follows a change of the ConfigMap.
        - {name: config, mountPath: /etc/orderclose, readOnly: true}
        {{- range $servers }}
        - {name: {{ . }}, mountPath: /run/secrets/{{ . }}, readOnly: true}
        {{- end }}
        {{- with $root.Values.container.volumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- if and (eq .part "console") $root.Values.console.proxy.enabled }}
    {{- include "orderclose.proxy" $root | nindent 4 }}
    {{- end }}
  volumes:
    - name: config
      configMap: {name: {{ include "orderclose.name" $root }}-{{ $config.name }}}
    {{- range $servers }}
    - name: {{ . }}
      secret: {secretName: {{ get $secrets . }}, optional: true, defaultMode: 0440}
    {{- end }}
    {{- with $pod.volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- if not (or .restartPolicy (hasKey $pod "topologySpreadConstraints")) }}
  # Over nodes and zones, as far as the cluster can.
  topologySpreadConstraints:
    {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
    - topologyKey: {{ . }}
      maxSkew: 1
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "orderclose.selector" $root | nindent 10 }}
          app.kubernetes.io/component: {{ $.part }}
      matchLabelKeys: [{{ ternary "controller-revision-hash" "pod-template-hash" $stateful }}]
    {{- end }}
  {{- end }}
{{- end }}

{{/* The container that signs users in. It passes on the name of the host, and replaces the header that names the user. */}}
{{- define "orderclose.proxy" -}}
{{- $env := .Values.console.env -}}
- name: proxy
  image: {{ .Values.console.proxy.image | quote }}
  args:
    - --http-address=0.0.0.0:4180
    - --upstream=http://{{ $env.ORDERCLOSE_CONSOLE_LISTEN | default "127.0.0.1:9465" }}
    - --upstream-timeout=5m # an action takes 4 minutes at most
    - --proxy-prefix={{ $env.ORDERCLOSE_CONSOLE_BASE_PATH | default "" | trimSuffix "/" }}/oauth2
    - --reverse-proxy=true
    - --skip-provider-button=true
    {{- range .Values.console.proxy.args }}
    - {{ . | quote }}
    {{- end }}
  envFrom:
    - secretRef: {name: {{ .Values.console.proxy.secret }}}
  {{- with include "orderclose.memory" .Values.console.proxy.resources }}
  env:
    - {name: GOMEMLIMIT, value: {{ . | quote }}}
  {{- end }}
  {{- toYaml (omit .Values.container "volumeMounts") | nindent 2 }}
  resources: {{- toYaml .Values.console.proxy.resources | nindent 4 }}
  ports:
    - {name: proxy, containerPort: 4180}
  livenessProbe:
    httpGet: {path: /ping, port: proxy}
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 3
  readinessProbe:
    httpGet: {path: /ready, port: proxy}
    periodSeconds: 5
    timeoutSeconds: 5
{{- end }}

{{/* The labels by which Prometheus finds the release's series. */}}
{{- define "orderclose.series" -}}
namespace={{ .Release.Namespace | quote }},job={{ include "orderclose.name" . | quote }}
{{- end }}

{{/* While closing is paused, a query has no result. Then the autoscaler keeps the replicas. */}}
{{- define "orderclose.unlessPaused" -}}
unless on() (max(orderclose_paused{ {{- include "orderclose.series" . }}}) > 0)
{{- end }}

{{/* The number of partitions. */}}
{{- define "orderclose.partitions" -}}
{{- .Values.topics.partitions | default 12 | int -}}
{{- end }}

{{/* The name of the close topic. */}}
{{- define "orderclose.closeTopic" -}}
{{- $topics := .Values.topics.topics | default dict -}}
{{- printf "%sorder-close" ($topics.prefix | default "") -}}
{{- end }}
