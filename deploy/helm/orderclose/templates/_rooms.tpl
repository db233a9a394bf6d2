{{/* Generated from the rooms: UPDATE_GOLDEN=1 go test ./deploy -run ChartFollows. The roles, and what they need. */}}
{{- define "orderclose.rooms" -}}
webhook: {"kafka":false,"servers":["database","services"],"required":["ORDERCLOSE_WEBHOOK_SECRET"],"secrets":["ORDERCLOSE_WEBHOOK_SECRET"],"urls":[]}
{{- end }}
