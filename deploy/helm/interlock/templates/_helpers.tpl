{{- define "interlock.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{- define "interlock.image" -}}
{{- .Values.image.repository -}}:{{- .Values.image.tag | default .Chart.AppVersion -}}
{{- end }}

{{- define "interlock.labels" -}}
app.kubernetes.io/name: interlock
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "interlock.policyName" -}}
{{- .Values.policy.existingConfigMap | default (printf "%s-policy" (include "interlock.name" .)) -}}
{{- end }}

{{/* A container that has no rights at all. */}}
{{- define "interlock.noRights" -}}
runAsUser: 10001
runAsGroup: 10001
runAsNonRoot: true
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
{{- end }}

{{/* Whether there is a folder of policies: files of our own, or a ConfigMap of the user's. */}}
{{- define "interlock.policyFiles" -}}
{{- if or .Values.policy.existingConfigMap .Values.policy.files .Values.database.deny.hosts .Values.database.deny.cidrs -}}true{{- end -}}
{{- end }}

{{/* The environment that sidecar and gateway share. */}}
{{- define "interlock.env" -}}
# A volume's root folder is open to its group; the proxy creates this subfolder for itself.
- {name: INTERLOCK_STATE_DIR, value: /var/lib/interlock/state}
- {name: INTERLOCK_PROFILE, value: {{ .Values.policy.profile | quote }}}
{{- if .Values.database.existingSecret }}
- {name: INTERLOCK_DATABASE_URL_FILE, value: /run/secrets/database/url}
- {name: SIDECAR_MIGRATE, value: {{ ternary "1" "0" .Values.database.migrate | quote }}}
{{- end }}
{{- with .Values.fleet.existingSecret }}
# One CA, one set of keys, agents and pins for all: each replica joins when it starts, and the first one makes the fleet.
- {name: SIDECAR_FLEET, value: "1"}
- {name: INTERLOCK_KEY_ENCRYPTION_KEY, value: "env:INTERLOCK_KEK"}
- {name: INTERLOCK_KEK, valueFrom: {secretKeyRef: {name: {{ . }}, key: key}}}
{{- end }}
{{- with .Values.telemetry }}
{{- if .otlpEndpoint }}
- {name: INTERLOCK_SINKS, value: {{ list (dict "kind" "otlp" "endpoint" .otlpEndpoint) | toJson | quote }}}
{{- if .headersSecret }}
- {name: OTEL_EXPORTER_OTLP_HEADERS, valueFrom: {secretKeyRef: {name: {{ .headersSecret }}, key: headers}}}
{{- end }}
{{- end }}
{{- end }}
{{- range $name, $value := .Values.settings }}
- {name: {{ printf "INTERLOCK_%s" (upper $name) | quote }}, value: {{ kindIs "slice" $value | ternary (join " " $value) (toString $value) | quote }}}
{{- end }}
{{- end }}

{{- define "interlock.mounts" -}}
- {name: {{ .state }}, mountPath: /var/lib/interlock}
- {name: {{ .tmp }}, mountPath: /tmp}
{{- if include "interlock.policyFiles" .root }}
- {name: {{ .policy }}, mountPath: /etc/interlock/policies, readOnly: true}
{{- end }}
{{- if .root.Values.database.existingSecret }}
- {name: {{ .database }}, mountPath: /run/secrets/database, readOnly: true}
{{- end }}
{{- end }}

{{- define "interlock.configVolumes" -}}
{{- if include "interlock.policyFiles" .root }}
- name: {{ .policy }}
  configMap: {name: {{ include "interlock.policyName" .root }}}
{{- end }}
{{- if .root.Values.database.existingSecret }}
- name: {{ .database }}
  secret: {secretName: {{ .root.Values.database.existingSecret }}, defaultMode: 288}
{{- end }}
{{- end }}
