{{/* Generated from the rooms: UPDATE_GOLDEN=1 go test ./deploy -run ChartFollows. The roles, and what they need. */}}
{{- define "orderclose.rooms" -}}
intake: {"kafka":true,"servers":[],"required":[],"secrets":[],"urls":[],"excludes":[],"why":""}
release: {"kafka":true,"servers":["services"],"required":["ORDERCLOSE_RELEASE_URL"],"secrets":["ORDERCLOSE_RELEASE_TOKEN"],"urls":["ORDERCLOSE_RELEASE_URL"],"excludes":[],"why":""}
shadow: {"kafka":true,"servers":["database"],"required":[],"secrets":[],"urls":[],"excludes":["closer","compensator","sweeper"],"why":"runs beside another program that closes the orders"}
webhook: {"kafka":false,"servers":["database","services"],"required":["ORDERCLOSE_WEBHOOK_SECRET"],"secrets":["ORDERCLOSE_WEBHOOK_SECRET"],"urls":[],"excludes":[],"why":""}
{{- end }}
