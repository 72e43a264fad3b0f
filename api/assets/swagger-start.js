// Shows this service's own document. No validator: it would send the document elsewhere.
window.addEventListener("load", () => {
  window.SwaggerUIBundle({
    url: "/openapi.json",
    dom_id: "#swagger-ui",
    deepLinking: true,
    validatorUrl: null,
    persistAuthorization: false,
    presets: [window.SwaggerUIBundle.presets.apis],
  });
});
