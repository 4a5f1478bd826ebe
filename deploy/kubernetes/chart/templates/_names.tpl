{{- /* SPDX-License-Identifier: MIT OR Apache-2.0 */ -}}
{{- define "memferry.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "memferry.selector" -}}
app.kubernetes.io/name: memferry
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "memferry.labels" -}}
{{ include "memferry.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}
