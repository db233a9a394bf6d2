{{/* The name of the release's objects. A release whose name contains orderclose is not prefixed. */}}
{{- define "orderclose.name" -}}
{{- if contains "orderclose" .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-orderclose" (.Release.Name | trunc 29 | trimSuffix "-") -}}
{{- end -}}
{{- end }}

{{/* The labels that all objects of a release have. They never change: Deployments select by them. */}}
{{- define "orderclose.labels" -}}
app.kubernetes.io/name: orderclose
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The servers that each part uses. It decides which Secrets a pod gets and which ports it may reach. */}}
{{- define "orderclose.servers" -}}
relay: [kafka]
closer: [kafka, database, services]
compensator: [kafka, database, redis, services]
outbox: [kafka, database]
release: [kafka, services]
notify: [notify]
migrate: [database]
topics: [kafka]
{{- end }}

{{/* The data of the ConfigMap with the environment. */}}
{{- define "orderclose.env" -}}
ORDERCLOSE_LISTEN: 0.0.0.0:9464
{{- if not .Values.env.ORDERCLOSE_KAFKA_BROKERS }}
{{- fail "env.ORDERCLOSE_KAFKA_BROKERS is not set: set it to the brokers, such as kafka-1:9092,kafka-2:9092" }}
{{- end }}
{{- range $name, $value := .Values.env }}
{{ $name }}: {{ $value | quote }}
{{- end }}
{{- end }}

{{/*
The template of a pod. The dict has root, part (its component), args, of (the values of the part), and
for a Job restartPolicy. A pod of a Deployment is restarted if its environment changes, and not if topics.yaml
does, which the parts read again. notify has notify.yaml in place of topics.yaml, and does not read it again.
*/}}
{{- define "orderclose.pod" -}}
{{- $root := .root -}}
{{- $config := dict "name" "topics" "flag" "--config=/etc/orderclose/topics.yaml" "read" "" -}}
{{- if eq .part "notify" -}}
{{- $config = dict "name" "notify" "flag" "--notify-config=/etc/orderclose/notify.yaml" "read" (toYaml $root.Values.notify) -}}
{{- end -}}
{{- $secrets := merge (dict) .of.secrets $root.Values.secrets -}}
{{- $servers := get (include "orderclose.servers" $root | fromYaml) .part -}}
metadata:
  labels:
    {{- include "orderclose.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .part }}
  annotations:
    checksum/env: {{ print (include "orderclose.env" $root) $config.read | sha256sum | trunc 16 | quote }}
spec:
  serviceAccountName: {{ include "orderclose.name" $root }}
  automountServiceAccountToken: false # no part calls the Kubernetes API
  enableServiceLinks: false
  terminationGracePeriodSeconds: 15 # each part stops within 10 s
  {{- if .restartPolicy }}
  restartPolicy: {{ .restartPolicy }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: {{ .part }}
      image: {{ printf "%s:%s" $root.Values.image.repository ($root.Values.image.tag | default $root.Chart.AppVersion) | quote }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      args: {{ toJson (append .args $config.flag) }}
      envFrom:
        - configMapRef: {name: {{ include "orderclose.name" $root }}-env}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      resources: {{- toYaml .of.resources | nindent 8 }}
      {{- if not .restartPolicy }}
      ports:
        - {name: metrics, containerPort: 9464}
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
  volumes:
    - name: config
      configMap: {name: {{ include "orderclose.name" $root }}-{{ $config.name }}}
    {{- range $servers }}
    - name: {{ . }}
      secret: {secretName: {{ get $secrets . }}, optional: true, defaultMode: 0440}
    {{- end }}
  {{- if not (or .restartPolicy (hasKey $root.Values.pod "topologySpreadConstraints")) }}
  # Over nodes and zones, as far as the cluster can.
  topologySpreadConstraints:
    {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
    - topologyKey: {{ . }}
      maxSkew: 1
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "orderclose.labels" $root | nindent 10 }}
          app.kubernetes.io/component: {{ $.part }}
      matchLabelKeys: [pod-template-hash]
    {{- end }}
  {{- end }}
  {{- with $root.Values.pod }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* The labels by which Prometheus finds the release's series. */}}
{{- define "orderclose.series" -}}
namespace={{ .Release.Namespace | quote }},job={{ include "orderclose.name" . | quote }}
{{- end }}

{{/* While closes by the pipeline are paused, a query has no result. Then the autoscaler keeps the replicas. */}}
{{- define "orderclose.unlessPaused" -}}
unless on() (max(orderclose_paused{ {{- include "orderclose.series" . }},path="pipeline"}) > 0)
{{- end }}

{{/* The number of partitions. */}}
{{- define "orderclose.partitions" -}}
{{- .Values.topics.partitions | default 12 | int -}}
{{- end }}

{{/* The name of the close topic. */}}
{{- define "orderclose.closeTopic" -}}
{{- $topics := .Values.topics.topics | default dict -}}
{{- printf "%s%s" ($topics.prefix | default "") ($topics.close | default "order-close") -}}
{{- end }}
