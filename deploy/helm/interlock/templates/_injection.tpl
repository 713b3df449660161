{{/* What the injector adds to a pod: proxy/kubernetes/injection.py reads it. */}}
{{- define "interlock.injection" -}}
proxyUser: 10001
agentUser: 10002
optOut: {{ .Values.injector.optOut }}
initContainers:
  # TCP of all users other than the proxy's goes to the gateway; everything else is refused. Fails closed.
  - name: interlock-rules
    image: {{ include "interlock.image" . | quote }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    args: [apply-rules]
    securityContext:
      runAsUser: 0
      runAsNonRoot: false
      readOnlyRootFilesystem: true
      allowPrivilegeEscalation: false
      capabilities: {drop: [ALL], add: [NET_ADMIN]}
    resources: {{ toJson .Values.sidecar.gatewayResources }}
  - name: interlock
    image: {{ include "interlock.image" . | quote }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    restartPolicy: Always
    args: [up]
    env:
      {{- include "interlock.env" . | nindent 6 }}
      - {name: SIDECAR_SHARE, value: /share}
      - {name: INTERLOCK_LISTEN, value: "127.0.0.1:8080"}
      {{- if .Values.sidecar.metrics }}
      - {name: INTERLOCK_HEALTH_LISTEN, value: "0.0.0.0:8081"}
    ports: [{name: interlock-health, containerPort: 8081, protocol: TCP}]
      {{- end }}
    # From inside, so that no port need be open. The answer and the pod's events say why it is not ready.
    startupProbe:
      exec: {command: [python, -c, "import urllib.request as r; r.urlopen('http://127.0.0.1:8081/readyz', timeout=4)"]}
      periodSeconds: 2
      timeoutSeconds: 5
      failureThreshold: 60
    readinessProbe:
      exec: {command: [python, -c, "import urllib.request as r; r.urlopen('http://127.0.0.1:8081/readyz', timeout=4)"]}
      periodSeconds: 10
      timeoutSeconds: 5
    livenessProbe:
      exec: {command: [python, -c, "import urllib.request as r; r.urlopen('http://127.0.0.1:8081/healthz', timeout=4)"]}
      periodSeconds: 30
      timeoutSeconds: 5
    securityContext:
      {{- include "interlock.noRights" . | nindent 6 }}
    resources: {{ toJson .Values.sidecar.resources }}
    volumeMounts:
      {{- include "interlock.mounts" (dict "root" . "state" "interlock-state" "tmp" "interlock-tmp" "policy" "interlock-policy" "database" "interlock-database") | nindent 6 }}
      - {name: interlock-certificate, mountPath: /share}
  - name: interlock-gateway
    image: {{ include "interlock.image" . | quote }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    restartPolicy: Always
    args: [confine, gateway, --listen, "127.0.0.1:8080"]
    env:
      - {name: INTERLOCK_STATE_DIR, value: /tmp/state}
    startupProbe:
      exec: {command: [python, -c, "import socket; socket.create_connection(('127.0.0.1', 15001), 3)"]}
      periodSeconds: 2
      timeoutSeconds: 5
      failureThreshold: 60
    securityContext:
      {{- include "interlock.noRights" . | nindent 6 }}
    resources: {{ toJson .Values.sidecar.gatewayResources }}
    volumeMounts:
      - {name: interlock-gateway-tmp, mountPath: /tmp}
volumes:
  # Events that are not shipped yet are here.
  - {name: interlock-state, emptyDir: {sizeLimit: {{ .Values.sidecar.stateSize }}}}
  - {name: interlock-certificate, emptyDir: {sizeLimit: 8Mi}}
  - {name: interlock-tmp, emptyDir: {sizeLimit: 64Mi}}
  - {name: interlock-gateway-tmp, emptyDir: {sizeLimit: 16Mi}}
  {{- include "interlock.configVolumes" (dict "root" . "policy" "interlock-policy" "database" "interlock-database") | nindent 2 }}
agents:
  env:
    - {name: SSL_CERT_FILE, value: /share/bundle.pem}
    - {name: REQUESTS_CA_BUNDLE, value: /share/bundle.pem}
    - {name: CURL_CA_BUNDLE, value: /share/bundle.pem}
    - {name: GIT_SSL_CAINFO, value: /share/bundle.pem}
    - {name: NODE_EXTRA_CA_CERTS, value: /share/ca.pem}
  volumeMounts:
    - {name: interlock-certificate, mountPath: /share, readOnly: true}
{{- end }}
